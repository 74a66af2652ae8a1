//! What the recorder sees is what the reader gets; what is cut, damaged or too much is told, never a panic.

use std::fs;
use std::path::Path;

use adit_model::{Observer, Routing, Row, Scout};

use super::header::{Header, Layer, MAGIC, Plan};
use super::packer::Packer;
use super::reader::{Pick, Record, Records, TracedRow};
use super::words;
use super::writer::Tracing;

const EXPERTS: usize = 40;

fn header() -> Header {
    header_of(2, EXPERTS, 2)
}

fn header_of(layers: usize, experts: usize, used: usize) -> Header {
    Header {
        adit: "1".into(),
        model: "m.gguf".into(),
        architecture: "a".into(),
        layers,
        threads: 1,
        budget_bytes: 9,
        slots: 4,
        chunk: 8,
        sources: vec!["next".into()],
        expert_layers: (0..layers).map(|layer| Layer { layer, experts, used, bytes: 4096 }).collect(),
        plan: Plan { fixed_bytes: 1, backbone_bytes: 1, slot_bytes: 4096, scratch_bytes: vec![(8, 5)] },
    }
}

/// A trace put together record by record, sound or not.
pub struct TestTrace {
    header: Header,
    words: Vec<u32>,
}

impl TestTrace {
    pub fn new(layers: usize, experts: usize, used: usize) -> TestTrace {
        TestTrace { header: header_of(layers, experts, used), words: Vec::new() }
    }

    fn record(mut self, kind: u32, rest: &[u32]) -> TestTrace {
        self.words.push(words::head(kind, rest.len() + 1));
        self.words.extend(rest);
        self
    }

    pub fn step(self, rows: &[[u32; 3]]) -> TestTrace {
        self.record(words::STEP, &[&[0, 0, rows.len() as u32], rows.concat().as_slice()].concat())
    }

    /// Waits 77 ns.
    pub fn visit(self, layer: u32, rows: usize, picks: &[u32]) -> TestTrace {
        let head = [layer, rows as u32, (picks.len() / rows) as u32, 0, 0, 77, 0];
        self.record(words::VISIT, &[&head, picks].concat())
    }

    pub fn end_step(self, ns: u64) -> TestTrace {
        self.record(words::STEP_END, &words::halves(ns))
    }

    pub fn end(self) -> TestTrace {
        self.record(words::END, &[0; 4])
    }

    pub fn packed(&self) -> Vec<u8> {
        let json = serde_json::to_vec(&self.header).unwrap();
        let block: Vec<u8> = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut file = Vec::new();
        let mut packer = Packer::new();
        [[MAGIC, &json].concat(), block].iter().for_each(|block| packer.write(block, &mut file).unwrap());
        file
    }
}

/// Two rows, of which the second wants logits; both layers, as the engine tells of them.
fn watch_step(observer: &mut dyn Observer, position: usize, rows: usize) {
    let row = |at| Row { lane: 3, token: 7, position: position + at, wants_logits: at + 1 == rows };
    observer.begin_step(&(0..rows).map(row).collect::<Vec<_>>());
    for (layer, rows) in [(0, rows), (1, 1)] {
        observer.predicted(layer, Scout::Next2, &[0, 33, 39]);
        let picked: Vec<u32> = (0..rows as u32).flat_map(|row| [row % 39 + 1, 0]).collect();
        let weights = vec![0.5; picked.len()];
        let is_resident = &|expert| expert == 0;
        observer.routed(&Routing {
            layer,
            used: 2,
            picked: &picked,
            weights: &weights,
            missing_bytes: 1 << 33,
            is_resident,
        });
        observer.streamed(77);
    }
    observer.end_step(1 << 40);
}

fn trace(path: &Path, steps: usize, rows: usize, ring_words: usize) -> anyhow::Result<()> {
    let (tracing, mut observer) = Tracing::with_ring(path, &header(), ring_words)?;
    (0..steps).for_each(|step| watch_step(&mut *observer, step * rows, rows));
    tracing.end()
}

/// Reads everything; what each record is, and whether the file was cut off.
fn read(bytes: &[u8]) -> anyhow::Result<(Vec<String>, bool)> {
    let mut records = Records::open(bytes)?;
    let mut all = Vec::new();
    while let Some(record) = records.next()? {
        all.push(format!("{record:?}"));
    }
    Ok((all, records.is_cut))
}

#[test]
fn what_was_watched_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    trace(&path, 2, 2, 1 << 12).unwrap();
    let bytes = fs::read(&path).unwrap();
    assert!(Records::<&[u8]>::recognise(&bytes) && !Records::<&[u8]>::recognise(&bytes[1..]));
    let mut records = Records::open(&bytes[..]).unwrap();
    assert_eq!(records.header, header());
    for step in 0..2 {
        let Some(Record::Step { step: number, rows }) = records.next().unwrap() else { panic!("no step") };
        let row = |at: u32| TracedRow { token: 7, position: 2 * step + at, lane: 3, wants_logits: at == 1 };
        assert_eq!(number, u64::from(step));
        assert!(TracedRow::all(rows).eq([row(0), row(1)]));
        for layer in 0..2 {
            let set: &[u32] = &[1, 1 << 1 | 1 << 7];
            assert_eq!(records.next().unwrap(), Some(Record::Predicted { layer, source: 1, set }));
            let Some(Record::Visit { picks, bytes, wait_ns, used, .. }) = records.next().unwrap() else {
                panic!("no visit")
            };
            assert_eq!((bytes, wait_ns, used, picks.len()), (1 << 33, 77, 2, if layer == 0 { 4 } else { 2 }));
            let pick = |expert| Pick { expert, weight: 0.5, is_resident: expert == 0 };
            assert_eq!([Pick::of(picks[0]), Pick::of(picks[1])], [pick(1), pick(0)]);
        }
        assert_eq!(records.next().unwrap(), Some(Record::StepEnd { step_ns: 1 << 40 }));
    }
    assert_eq!(records.next().unwrap(), Some(Record::End { steps: 2, dropped: 0 }));
    assert_eq!(records.next().unwrap(), None);
    assert!(!records.is_cut);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "something is left beside the trace");
}

#[test]
fn steps_without_room_are_dropped_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    // A step of 60 rows is longer than the ring whatever the writer does.
    trace(&path, 3, 60, 256).unwrap();
    let (records, is_cut) = read(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(records.last().unwrap(), "End { steps: 0, dropped: 3 }");
    assert!(!is_cut && !records.iter().any(|record| record.starts_with("StepEnd")), "{records:?}");
}

#[test]
fn a_step_that_failed_is_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let (tracing, mut observer) = Tracing::with_ring(&path, &header(), 1 << 12).unwrap();
    observer.begin_step(&[Row { lane: 0, token: 1, position: 0, wants_logits: true }]);
    let routing = Routing {
        layer: 0,
        used: 1,
        picked: &[1],
        weights: &[1.0],
        missing_bytes: 0,
        is_resident: &|_| false,
    };
    observer.routed(&routing);
    watch_step(&mut *observer, 0, 2);
    tracing.end().unwrap();
    let (records, _) = read(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(records.iter().filter(|record| record.starts_with("Visit")).count(), 2, "{records:?}");
    assert_eq!(records.last().unwrap(), "End { steps: 1, dropped: 0 }");
}

#[test]
fn a_trace_that_is_cut_anywhere_is_read_up_to_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    trace(&path, 3, 2, 1 << 12).unwrap();
    let bytes = fs::read(&path).unwrap();
    let (all, _) = read(&bytes).unwrap();
    for end in 0..bytes.len() {
        match read(&bytes[..end]) {
            Ok((records, is_cut)) => assert!(records.len() < all.len() && (is_cut || records.is_empty())),
            Err(error) => assert!(format!("{error:#}").contains("cut off"), "{error:#}"),
        }
    }
}

fn with_words(words: &[u32]) -> Vec<u8> {
    TestTrace { header: header(), words: words.to_vec() }.packed()
}

#[test]
fn nonsense_in_records_is_an_error() {
    use words::{END, PREDICTED, STEP, STEP_END, VISIT, head};
    for (words, part) in [
        (&[0][..], "record of 0 words"),
        (&[head(STEP, 9)], "record of 9 words"),
        (&[head(STEP, 2), 0], "has 2 words"),
        (&[head(STEP, 4), 0, 0, u32::MAX], "rows"),
        (&[head(VISIT, 8), 0, 1 << 31, 1 << 31, 0, 0, 0, 0], "picks"),
        (&[head(PREDICTED, 2), 0], "has 2 words"),
        (&[head(STEP_END, 1)], "has 1 words"),
        (&[head(END, 3), 0, 0], "has 3 words"),
    ] {
        let error = format!("{:#}", read(&with_words(words)).unwrap_err());
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    }
    let (records, _) = read(&with_words(&[head(200, 2), 5])).unwrap();
    assert_eq!(records, ["Unknown"], "kinds of later versions are skipped");
}

#[test]
fn flipped_bytes_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    trace(&path, 2, 2, 1 << 12).unwrap();
    let bytes = fs::read(&path).unwrap();
    for at in 0..bytes.len() {
        for bit in [0, 3, 7] {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << bit;
            let _ = read(&bytes); // Whether it is an error depends on the place.
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_at_the_end_and_no_wait_before_it() {
    let error = trace(Path::new("/dev/full"), 500, 4, 256).unwrap_err();
    let error = format!("{error:#}");
    assert!(error.contains("/dev/full") && error.contains("the answer is complete"), "{error}");
}
