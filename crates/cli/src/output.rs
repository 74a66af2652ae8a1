//! Owns stdout. A closed pipe becomes [`OutputClosed`], so that `adit info M | head -1` ends quietly while a
//! broken connection elsewhere stays an error.

use std::fmt;
use std::io::{self, BufWriter, StdoutLock, Write};

/// The reader of our stdout has gone away.
#[derive(Debug)]
pub struct OutputClosed;

impl fmt::Display for OutputClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the reader of standard output has gone away")
    }
}

impl std::error::Error for OutputClosed {}

/// Buffered standard output. Flush it before the command ends: a drop cannot report a full disk.
pub struct Output(BufWriter<StdoutLock<'static>>);

impl Output {
    pub fn stdout() -> Output {
        Output(BufWriter::new(io::stdout().lock()))
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(named)
    }
}

fn named(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => io::Error::new(io::ErrorKind::BrokenPipe, OutputClosed),
        kind => io::Error::new(kind, format!("cannot write to standard output: {error}")),
    }
}
