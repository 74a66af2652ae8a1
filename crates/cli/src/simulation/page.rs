//! One self-contained page about traces: heat maps and curves as SVG, values as tables. No script, no font,
//! no file beside it; what a mouse pointer shows comes from SVG's own titles.

use std::fmt::Write;

use super::curves::{Curves, Line, Point};
use super::pool::Kind;

/// Plot area and margins, in SVG units.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 56.0;
const TOP: f64 = 14.0;
const RIGHT: f64 = 110.0;
const BOTTOM: f64 = 40.0;
/// Steps of the heat map's colours.
const HEATS: usize = 10;
/// Shares that the tables show.
const TABLE_SHARES: [f64; 6] = [0.03, 0.06, 0.12, 0.25, 0.5, 1.0];

const STYLE: &str = "\
:root{--ink:#1d2433;--soft:#667085;--line:#d6dbe4;--paper:#fff;--hot:194,65,12;--cold:#f1f3f7}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ef;--soft:#9aa4b5;--line:#39414f;--paper:#14181f;\
--hot:251,146,60;--cold:#1d232d}}\
body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1100px;\
margin:2em auto;padding:0 1em}\
h1{font-size:1.4em}h2{font-size:1.15em;margin-top:2.2em;overflow-wrap:anywhere}h3{font-size:1em}\
svg{max-width:100%;height:auto;display:block}text{fill:var(--soft);font-size:12px}\
.grid{stroke:var(--line);stroke-width:1}.cycle{stroke:var(--soft);stroke-dasharray:4 4}\
.curve{fill:none;stroke-width:2}table{border-collapse:collapse}\
td,th{padding:.2em .7em;text-align:right;border-bottom:1px solid var(--line);\
font-variant-numeric:tabular-nums}td:first-child,th:first-child{text-align:left}p{color:var(--soft)}";

/// Colours that differ in lightness as well, on light and on dark.
fn colour(kind: Kind) -> &'static str {
    match kind {
        Kind::Lru => "#64748b",
        Kind::Lfu => "#a16207",
        Kind::Lfuda => "#0891b2",
        Kind::S3fifo => "#7c3aed",
        Kind::Default => "#dc2626",
        Kind::Optimum => "#16a34a",
    }
}

/// The whole page.
pub fn page(traces: &[Curves]) -> String {
    let mut out = String::new();
    put(&mut out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>");
    put(&mut out, "<meta name=\"viewport\" content=\"width=device-width\"/><title>adit simulate</title>");
    put(
        &mut out,
        &format!("<style>{STYLE}</style></head>\n<body><h1>What memory makes of these routes</h1>"),
    );
    put(
        &mut out,
        "<p>A pool of slots for the experts of the whole model, empty at first. The optimum knows the \
         future. One token cycle is as many slots as a token uses experts.</p>",
    );
    traces.iter().for_each(|trace| section(&mut out, trace));
    put(&mut out, &format!("<p>adit {}</p></body></html>", env!("CARGO_PKG_VERSION")));
    out
}

fn put(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

fn section(out: &mut String, trace: &Curves) {
    put(out, &format!("<h2>{}</h2>", escape(&trace.name)));
    let mut about = format!(
        "{} tokens, {} layers of {} experts; one token cycle is {:.1} % of the experts",
        trace.tokens,
        trace.layers,
        trace.experts_per_layer,
        100.0 * trace.token_cycle_share
    );
    if trace.prefill_tokens > 0 {
        about += &format!("; {} tokens of prompts before them are not counted", trace.prefill_tokens);
    }
    if let Some(remark) = &trace.remark {
        about += &format!("; {}", escape(remark));
    }
    put(out, &format!("<p>{about}.</p>"));
    put(out, "<h3>Hit rate by the share of experts in memory</h3>");
    chart(out, trace, &Axis::percent(), |point| Some(point.hit_rate));
    table(out, trace, "hit rate", |point| Some(format!("{:.1} %", 100.0 * point.hit_rate)));
    let rates = || trace.lines.iter().flat_map(|line| &line.points).filter_map(|point| point.tok_per_s);
    if let Some(axis) = Axis::logarithmic(rates()) {
        let compute = match trace.compute_s {
            Some(seconds) => format!("{:.2} ms of computing, whichever takes longer", seconds * 1e3),
            None => "nothing for computing, whose time is not known".to_owned(),
        };
        let disk = trace.disk_gb_per_s;
        put(out, "<h3>Expected tokens a second</h3>");
        put(out, &format!("<p>With a disk of {disk:.2} GB/s and {compute}.</p>"));
        chart(out, trace, &axis, |point| point.tok_per_s);
        table(out, trace, "tok/s", |point| point.tok_per_s.map(|rate| format!("{rate:.2}")));
    }
    put(out, "<h3>How often each expert was used</h3>");
    heat_map(out, trace);
}

/// How values become heights.
struct Axis {
    low: f64,
    high: f64,
    ticks: Vec<(f64, String)>,
    is_logarithmic: bool,
}

impl Axis {
    fn percent() -> Axis {
        let ticks = (0..=5).map(|tick| (f64::from(tick) / 5.0, format!("{} %", tick * 20))).collect();
        Axis { low: 0.0, high: 1.0, ticks, is_logarithmic: false }
    }

    /// From 1, 2 or 5 times a power of ten to another; `None` without values.
    fn logarithmic(values: impl Iterator<Item = f64>) -> Option<Axis> {
        let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(low, high), v| (low.min(v), high.max(v)));
        if !(low > 0.0 && low <= high && high.is_finite()) {
            return None;
        }
        let powers = low.log10().floor() as i32..=high.log10().floor() as i32;
        let all = powers.flat_map(|power| [1.0, 2.0, 5.0, 10.0].map(|digit| digit * 10f64.powi(power)));
        let all: Vec<f64> = all.collect();
        let first = all.iter().rposition(|&tick| tick <= low).unwrap_or(0);
        let last = all.iter().position(|&tick| tick >= high).unwrap_or(all.len() - 1);
        let mut ticks: Vec<f64> = all[first..=last.max(first + 1).min(all.len() - 1)].to_vec();
        ticks.dedup();
        let (low, high) = (ticks[0], ticks[ticks.len() - 1]);
        let ticks = ticks.into_iter().map(|tick| (tick, format!("{tick}"))).collect();
        Some(Axis { low, high: high.max(low * 2.0), ticks, is_logarithmic: true })
    }

    fn y(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.is_logarithmic { value.ln() } else { value };
        let share = (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low));
        TOP + HEIGHT * (1.0 - share.clamp(0.0, 1.0))
    }
}

fn x(share: f64) -> f64 {
    LEFT + WIDTH * share.clamp(0.0, 1.0)
}

fn chart(out: &mut String, trace: &Curves, axis: &Axis, value: impl Fn(&Point) -> Option<f64>) {
    let (width, height) = (LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM);
    put(out, &format!("<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\">"));
    for (tick, label) in &axis.ticks {
        let y = axis.y(*tick);
        let right = LEFT + WIDTH;
        put(out, &format!("<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"));
        put(out, &label_at(LEFT - 6.0, y + 4.0, "end", label));
    }
    let bottom = TOP + HEIGHT;
    for percent in [0, 20, 40, 60, 80, 100] {
        put(out, &label_at(x(f64::from(percent) / 100.0), bottom + 18.0, "middle", &format!("{percent} %")));
    }
    put(out, &label_at(LEFT + WIDTH / 2.0, bottom + 34.0, "middle", "experts in memory"));
    let cycle = x(trace.token_cycle_share);
    put(
        out,
        &format!("<line class=\"cycle\" x1=\"{cycle:.1}\" x2=\"{cycle:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>"),
    );
    put(out, &label_at(cycle + 4.0, bottom - 6.0, "start", "one token cycle"));
    for (at, line) in trace.lines.iter().enumerate() {
        curve(out, line, axis, &value);
        let y = TOP + 14.0 + 20.0 * at as f64;
        let (from, to, colour) = (LEFT + WIDTH + 12.0, LEFT + WIDTH + 30.0, colour(line.kind));
        put(out, &format!("<path class=\"curve\" stroke=\"{colour}\" d=\"M{from} {:.1}H{to}\"/>", y - 4.0));
        put(out, &label_at(to + 6.0, y, "start", line.kind.name()));
    }
    put(out, "</svg>");
}

fn label_at(x: f64, y: f64, anchor: &str, text: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>")
}

fn curve(out: &mut String, line: &Line, axis: &Axis, value: impl Fn(&Point) -> Option<f64>) {
    let mut path = String::new();
    for point in &line.points {
        if let Some(value) = value(point) {
            let command = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", x(point.share), axis.y(value));
        }
    }
    let (colour, name) = (colour(line.kind), line.kind.name());
    put(out, &format!("<path class=\"curve\" stroke=\"{colour}\" d=\"{path}\"><title>{name}</title></path>"));
}

/// Values at a few sizes, for whoever wants figures.
fn table(out: &mut String, trace: &Curves, what: &str, value: impl Fn(&Point) -> Option<String>) {
    let nearest = |line: &Line, share: f64| {
        let distance = |point: &&Point| (point.share - share).abs();
        line.points.iter().min_by(|a, b| distance(a).total_cmp(&distance(b))).copied().unwrap_or_default()
    };
    let Some(first) = trace.lines.first() else { return };
    let mut titles = format!("<tr><th>{what} at</th>");
    for share in TABLE_SHARES {
        let _ = write!(titles, "<th>{:.1} %</th>", 100.0 * nearest(first, share).share);
    }
    put(out, &format!("<table>{titles}</tr>"));
    for line in &trace.lines {
        let mut row = format!("<tr><td>{}</td>", line.kind.name());
        for share in TABLE_SHARES {
            let value = value(&nearest(line, share)).unwrap_or_else(|| "-".to_owned());
            let _ = write!(row, "<td>{value}</td>");
        }
        put(out, &format!("{row}</tr>"));
    }
    put(out, "</table>");
}

/// A row for each layer, a column for each expert.
fn heat_map(out: &mut String, trace: &Curves) {
    let (layers, experts) = (trace.layers, trace.experts_per_layer.max(1));
    let cell = (1000.0 / experts as f64).clamp(2.0, 12.0).floor();
    let (width, height) = (LEFT + cell * experts as f64, cell * layers as f64 + 18.0);
    let most = trace.heat.iter().copied().max().unwrap_or(0).max(1);
    put(
        out,
        &format!("<p>A row for each layer, a column for each expert; the darkest was used {most} times.</p>"),
    );
    put(out, &format!("<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\">"));
    put(
        out,
        &format!(
            "<rect x=\"{LEFT}\" y=\"0\" width=\"{}\" height=\"{}\" fill=\"var(--cold)\"/>",
            cell * experts as f64,
            cell * layers as f64
        ),
    );
    for layer in (0..layers).filter(|layer| layer % 8 == 0) {
        put(out, &label_at(LEFT - 6.0, cell * layer as f64 + 10.0, "end", &format!("layer {layer}")));
    }
    for (place, &uses) in trace.heat.iter().enumerate().filter(|&(_, &uses)| uses > 0) {
        let (layer, expert) = (place / experts, place % experts);
        // The root shows differences among what is used little.
        let level = (f64::from(uses) / f64::from(most)).sqrt();
        let opacity = (level * HEATS as f64).ceil() / HEATS as f64;
        let (x, y) = (LEFT + cell * expert as f64, cell * layer as f64);
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{cell}\" height=\"{cell}\" \
             fill=\"rgba(var(--hot),{opacity})\"><title>layer {layer}, expert {expert}: {uses}</title></rect>"
        );
    }
    put(out, &label_at(LEFT, height - 4.0, "start", "expert 0"));
    put(out, &label_at(width, height - 4.0, "end", &format!("expert {}", experts - 1)));
    put(out, "</svg>");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logarithmic_axis_ends_at_ticks_around_its_values() {
        let axis = Axis::logarithmic([0.7, 31.0].into_iter()).unwrap();
        assert_eq!((axis.low, axis.high), (0.5, 50.0));
        assert!(axis.y(0.7) > axis.y(31.0));
        let single = Axis::logarithmic([10.0].into_iter()).unwrap();
        assert!(single.low <= 10.0 && single.high > single.low);
        assert!(Axis::logarithmic(std::iter::empty()).is_none());
    }

    #[test]
    fn names_cannot_break_the_page() {
        assert_eq!(escape("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
    }
}
