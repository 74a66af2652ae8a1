//! Route traces: `# route_trace v1`, comments that say what the model has, a line of column names, and one
//! row for each expert of a token's layer. A prompt stands layer by layer in them; it is put into the order
//! of its tokens, so that every trace means the same work.

use std::str::FromStr;

use anyhow::{Context, Result, bail};

use super::trace::{EXPERTS_MAX, LAYERS_MAX, Lines, Memory, Trace};

const COLUMNS: [&str; 4] = ["turn", "step", "layer", "expert"];

/// One expert of one layer for one token, in the order of `COLUMNS`.
type Row = [u32; COLUMNS.len()];

/// Where the columns stand that are read, and how many there are.
#[derive(Clone, Copy)]
struct Columns {
    places: [usize; COLUMNS.len()],
    count: usize,
}

#[derive(Default)]
struct Header {
    layers: Option<usize>,
    experts: Option<usize>,
    expert_bytes: Vec<Option<u64>>,
    /// What stays in memory, of all layers that say so.
    dense_bytes: Option<u64>,
}

/// `line` is the first one.
pub fn parse(mut line: String, lines: &mut Lines) -> Result<Trace> {
    if line.trim() != "# route_trace v1" {
        bail!("expected \"# route_trace v1\"");
    }
    let mut header = Header::default();
    let mut columns: Option<Columns> = None;
    let mut rows: Vec<Row> = Vec::new();
    while lines.next(&mut line)? {
        let text = line.trim();
        match (text.strip_prefix('#'), columns) {
            (Some(comment), _) => header.read(comment)?,
            (None, _) if text.is_empty() => {}
            (None, None) => columns = Some(find_columns(text)?),
            (None, Some(columns)) => rows.push(header.check(row(text, columns)?)?),
        }
    }
    // Stable: the experts of a token's layer stay in their order.
    rows.sort_by_key(|&[turn, step, layer, _]| (turn, step, layer));
    collect(header, &rows)
}

fn collect(header: Header, rows: &[Row]) -> Result<Trace> {
    let mut trace = Trace::default();
    let mut experts = Vec::new();
    let is_one_token = |a: &Row, b: &Row| a[..2] == b[..2];
    for (token, rows) in rows.chunk_by(is_one_token).enumerate() {
        for visit in rows.chunk_by(|a, b| a[2] == b[2]) {
            experts.clear();
            experts.extend(visit.iter().map(|row| row[3]));
            trace.push(token, visit[0][2] as usize, &experts)?;
        }
    }
    trace.layers = header.layers.unwrap_or(trace.layers);
    trace.experts_per_layer = header.experts.unwrap_or(trace.experts_per_layer);
    // Sizes of some layers only would be no sum.
    let bytes: Option<Vec<u64>> = header.expert_bytes.into_iter().collect();
    trace.memory = header.dense_bytes.map_or(Memory::Unknown, Memory::Backbone);
    trace.expert_bytes = bytes.filter(|bytes| bytes.len() == trace.layers).unwrap_or_default();
    Ok(trace)
}

impl Header {
    fn read(&mut self, comment: &str) -> Result<()> {
        let value = |name: &str| {
            let values = comment.split_whitespace().filter_map(|word| word.split_once('='));
            values.filter(|(key, _)| *key == name).map(|(_, value)| value).next()
        };
        if let Some(layers) = value("n_layer") {
            self.layers = Some(within(layers, "n_layer", LAYERS_MAX)?);
        }
        if let Some(experts) = value("n_expert") {
            self.experts = Some(within(experts, "n_expert", EXPERTS_MAX)?);
        }
        if let (Some(layer), Some(bytes)) = (value("layer"), value("expert_bytes")) {
            let layer = number::<usize>(layer, "layer")?;
            if layer >= LAYERS_MAX {
                bail!("layer={layer} is more than any model has");
            }
            if self.expert_bytes.len() <= layer {
                self.expert_bytes.resize(layer + 1, None);
            }
            self.expert_bytes[layer] = Some(number(bytes, "expert_bytes")?);
            if let Some(bytes) = value("dense_bytes") {
                let sum = self.dense_bytes.unwrap_or(0).saturating_add(number(bytes, "dense_bytes")?);
                self.dense_bytes = Some(sum);
            }
        }
        Ok(())
    }

    fn check(&self, row: Row) -> Result<Row> {
        let [_, _, layer, expert] = row;
        if let Some(layers) = self.layers.filter(|&layers| layer as usize >= layers) {
            bail!("layer {layer} in a trace with n_layer={layers}");
        }
        if let Some(experts) = self.experts.filter(|&experts| expert as usize >= experts) {
            bail!("expert {expert} in a trace with n_expert={experts}");
        }
        Ok(row)
    }
}

fn find_columns(names: &str) -> Result<Columns> {
    let mut places = [0; COLUMNS.len()];
    for (place, column) in places.iter_mut().zip(COLUMNS) {
        let found = names.split(',').position(|name| name.trim() == column);
        *place = found.with_context(|| format!("expected the names of columns, {column} among them"))?;
    }
    Ok(Columns { places, count: names.split(',').count() })
}

fn row(text: &str, columns: Columns) -> Result<Row> {
    let fields = text.split(',').count();
    if fields != columns.count {
        bail!("a row of {fields} fields where {} columns are named", columns.count);
    }
    let mut row = [0; COLUMNS.len()];
    for ((value, place), column) in row.iter_mut().zip(columns.places).zip(COLUMNS) {
        let field = text.split(',').nth(place).with_context(|| format!("the row has no {column}"))?;
        *value = number(field.trim(), column)?;
    }
    Ok(row)
}

fn within(text: &str, name: &str, most: usize) -> Result<usize> {
    let value = number(text, name)?;
    if value == 0 || value > most {
        bail!("{name}={value} is not from 1 to {most}");
    }
    Ok(value)
}

fn number<T: FromStr>(text: &str, name: &str) -> Result<T> {
    text.parse().ok().with_context(|| format!("{name} should be a whole number, not {text:?}"))
}
