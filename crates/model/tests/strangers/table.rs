//! `docs/families.md`: the tables of what runs and how near to the reference it is. Each test holds its
//! row to what it measured; with `ADIT_FAMILIES_DOC=write` it writes the row instead.

use std::path::PathBuf;
use std::sync::Mutex;

/// Line with the names of the columns of the strangers' table.
pub const STRANGERS: &str = "| file | architecture | mixer | feed-forward | largest difference |";
/// And of that of our own models.
pub const ZOO: &str = "| model | special about it | F32 | Q8_0 | Q4_K |";

/// What came of a model.
pub enum Outcome {
    /// Greatest difference to the reference, as a share of the range of logits.
    Runs(f32),
    /// Within this bound, where what comes out hangs on the processor.
    Within(f32),
    /// The error's text, without the file.
    Refused(String),
}

/// A row to be held to what the table says.
pub struct Row {
    /// The first column.
    pub name: &'static str,
    /// The columns that do not depend on what came out.
    pub about: Vec<String>,
    pub outcomes: Vec<Outcome>,
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/families.md")
}

fn read() -> String {
    std::fs::read_to_string(path()).expect("docs/families.md can be read")
}

fn is_written() -> bool {
    std::env::var("ADIT_FAMILIES_DOC").is_ok_and(|action| action == "write")
}

/// The document before the rows of the table, the rows, and what follows them.
fn parts<'a>(doc: &'a str, head: &str) -> (&'a str, Vec<&'a str>, &'a str) {
    let start = doc.find(head).unwrap_or_else(|| panic!("docs/families.md has no table `{head}`"));
    let rule_end = doc[start..].match_indices('\n').nth(1).expect("a line below the names").0 + start + 1;
    let rows: Vec<&str> = doc[rule_end..].lines().take_while(|line| line.starts_with('|')).collect();
    let end = rule_end + rows.iter().map(|row| row.len() + 1).sum::<usize>();
    (&doc[..rule_end], rows, &doc[end..])
}

/// The power of ten that is at least twice `worst`.
fn bound(worst: f32) -> i32 {
    (2.0 * worst.max(1e-9)).log10().ceil() as i32
}

impl Outcome {
    fn cell(&self) -> String {
        match self {
            Outcome::Runs(worst) => format!("below 1e{}", bound(*worst)),
            Outcome::Within(bound) => format!("within {bound}"),
            Outcome::Refused(why) => format!("refused: {why}"),
        }
    }

    fn agrees(&self, cell: &str) -> bool {
        match self {
            Outcome::Within(_) | Outcome::Refused(_) => cell == self.cell(),
            // Another processor may round otherwise, but not by much.
            Outcome::Runs(worst) => cell.strip_prefix("below ").is_some_and(|bound| {
                let bound: f32 = bound.parse().expect("a bound is a number");
                (bound / 100.0..=bound).contains(&worst.max(1e-9))
            }),
        }
    }
}

impl Row {
    fn start(&self) -> String {
        format!(
            "| {} | {}",
            self.name,
            self.about.iter().map(|cell| format!("{cell} | ")).collect::<String>()
        )
    }

    /// Panics where the table does not say what came out.
    pub fn check(&self, head: &str) {
        let ends: Vec<String> = self.outcomes.iter().map(Outcome::cell).collect();
        let new = format!("{}{} |", self.start(), ends.join(" | "));
        if is_written() {
            return write(head, self.name, &new);
        }
        let doc = read();
        let own = format!("| {} |", self.name);
        let row = parts(&doc, head).1.into_iter().find(|row| row.starts_with(&own)).unwrap_or("no row");
        let end = row.strip_prefix(&self.start()).and_then(|end| end.strip_suffix(" |")).unwrap_or_default();
        let cells: Vec<&str> = end.split(" | ").collect();
        let agrees = cells.len() == self.outcomes.len()
            && self.outcomes.iter().zip(cells).all(|(outcome, cell)| outcome.agrees(cell));
        assert!(
            agrees,
            "docs/families.md has `{row}`, but what came out is `{new}`; run this test with \
             ADIT_FAMILIES_DOC=write"
        );
    }
}

/// Puts `row` in its place among the rows of the table, which are in order of their names.
fn write(head: &str, name: &str, row: &str) {
    static WRITING: Mutex<()> = Mutex::new(());
    let _writing = WRITING.lock();
    let doc = read();
    let (before, rows, after) = parts(&doc, head);
    let old = format!("| {name} |");
    let mut rows: Vec<&str> = rows.into_iter().filter(|line| !line.starts_with(&old)).chain([row]).collect();
    rows.sort_unstable();
    std::fs::write(path(), format!("{before}{}\n{after}", rows.join("\n"))).expect("the document is written");
}

/// Panics where the table has other rows than those of `names`.
pub fn assert_rows(head: &str, mut names: Vec<&str>) {
    if is_written() {
        return;
    }
    let doc = read();
    let rows = parts(&doc, head).1;
    let rows: Vec<&str> = rows.iter().map(|row| row.split(' ').nth(1).expect("a name")).collect();
    names.sort_unstable_by_key(|name| format!("| {name} |"));
    assert_eq!(rows, names);
}
