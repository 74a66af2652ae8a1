//! Positioned reads: one at a time for each I/O thread. Works everywhere.

use super::{Done, Io, Read, read_at};
use crate::{ReadCause, disk::Shared, wake::Event};
use std::{sync::Arc, time::Duration};

/// Threads, since each has one read in flight: enough to keep an SSD busy, few enough to be cheap.
pub(crate) const THREADS: usize = 4;

pub(crate) struct Plain {
    shared: Arc<Shared>,
    done: Option<Done>,
}

impl Plain {
    pub(crate) fn boxed(shared: Arc<Shared>) -> Box<dyn Io> {
        Box::new(Plain { shared, done: None })
    }
}

impl Io for Plain {
    fn depth(&self) -> usize {
        1
    }

    fn start(&mut self, read: Read) {
        assert!(self.done.is_none(), "a plain reader has one read in flight");
        // SAFETY: the caller of `start` lends these bytes until the read is done.
        let memory = unsafe { self.shared.frames.exclusive(read.place, read.bytes) };
        let file = &self.shared.files.file(read.file).file;
        let result = read_at(file, memory, read.offset).map_err(|error| ReadCause::from_io(&error));
        self.done = Some(Done { ticket: read.ticket, result });
    }

    fn take(&mut self) -> Option<Done> {
        self.done.take()
    }

    fn wait(&mut self, bell: &Event, seen: u32, limit: Option<Duration>) {
        match limit {
            Some(limit) => bell.wait_at_most(seen, limit),
            None => bell.wait(seen),
        }
    }
}
