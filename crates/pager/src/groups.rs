//! What is streamed: groups of equal members, each in a few parts of the files, and where the parts of
//! a member lie in a slot. Parts that touch in their file are read as one run. Must not know which members
//! are resident.

use crate::{
    FileSet, PagerError,
    fetch::Fetch,
    layout::{Extent, Frame, Run, frame, piece_count, pieces},
};
use std::ops::Range;

/// One part of all members of a group: as many pieces of equal length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Length of each piece.
    pub member_bytes: u64,
    places: Places,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Places {
    /// Member `m` is at `offset + m * member_bytes`.
    Array { file: u32, offset: u64 },
    /// File and offset of each member.
    Listed(Box<[(u32, u64)]>),
}

impl Part {
    /// Pieces one behind the other, from `offset` of `file` on.
    pub fn array(file: u32, offset: u64, member_bytes: u64) -> Part {
        Part { member_bytes, places: Places::Array { file, offset } }
    }

    /// Pieces anywhere: file and offset of each member's.
    pub fn listed(places: Vec<(u32, u64)>, member_bytes: u64) -> Part {
        Part { member_bytes, places: Places::Listed(places.into()) }
    }

    /// Where the piece of a member lies.
    ///
    /// # Panics
    /// When the places are listed and there is none for this member.
    pub fn extent(&self, member: u32) -> Extent {
        let bytes = self.member_bytes;
        let (file, offset) = match &self.places {
            Places::Array { file, offset } => {
                (*file, offset.saturating_add(u64::from(member).saturating_mul(bytes)))
            }
            Places::Listed(places) => places[member as usize],
        };
        Extent { file, offset, bytes }
    }

    fn heap_bytes(&self) -> usize {
        match &self.places {
            Places::Array { .. } => 0,
            Places::Listed(places) => size_of_val(&places[..]),
        }
    }
}

/// Members that are asked for together, each made of one piece of every part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub parts: Vec<Part>,
    pub members: u32,
}

/// A group and its place in a slot.
pub(crate) struct GroupLayout {
    group: Group,
    align: u64,
    /// The parts in the order in which member 0 has them in its files, which is their order in a slot.
    order: Box<[usize]>,
    /// Where each part of each member begins in a slot, member by member.
    starts: Box<[u64]>,
    slot_bytes: u64,
    reads_max: usize,
    /// Number of the group's member 0 when the members of all groups are counted through.
    first: usize,
}

/// Refuses groups that reach beyond the end of their files.
pub(crate) fn check(files: &FileSet, groups: &[Group]) -> Result<(), PagerError> {
    for group in groups {
        for part in &group.parts {
            (0..group.members).try_for_each(|member| files.check(part.extent(member)))?;
        }
    }
    Ok(())
}

/// Lays groups out, and numbers the members of all groups through.
pub(crate) fn layouts(groups: &[Group], align: u64) -> Vec<GroupLayout> {
    let mut first = 0;
    let mut layouts = Vec::with_capacity(groups.len());
    for group in groups {
        layouts.push(GroupLayout::new(group.clone(), align, first));
        first += group.members as usize;
    }
    layouts
}

impl GroupLayout {
    fn new(group: Group, align: u64, first: usize) -> GroupLayout {
        assert!(group.members > 0 && !group.parts.is_empty(), "a group has members and parts");
        for part in &group.parts {
            assert!(part.member_bytes > 0, "a part has bytes");
            let Places::Listed(places) = &part.places else { continue };
            assert!(places.len() == group.members as usize, "a listed part has a place for each member");
        }
        let mut order: Box<[usize]> = (0..group.parts.len()).collect();
        order.sort_by_key(|&part| {
            let extent = group.parts[part].extent(0);
            (extent.file, extent.offset)
        });
        let starts = vec![0; group.members as usize * group.parts.len()].into();
        let mut layout = GroupLayout { group, align, order, starts, slot_bytes: 0, reads_max: 0, first };
        (0..layout.group.members).for_each(|member| layout.place(member));
        layout
    }

    /// Finds out where the parts of a member begin in a slot, and how much of it the member takes.
    fn place(&mut self, member: u32) {
        let first = member as usize * self.group.parts.len();
        let (mut at, mut bytes, mut reads) = (0, 0, 0);
        for run in self.runs(member).collect::<Vec<_>>() {
            let end = run.frame.start.saturating_add(run.frame.wanted);
            while let Some(&part) = self.order.get(at) {
                let extent = self.group.parts[part].extent(member);
                let is_inside = extent.file == run.file && extent.offset >= run.frame.start;
                if !is_inside || extent.offset.saturating_add(extent.bytes) > end {
                    break;
                }
                self.starts[first + part] = run.place.saturating_add(extent.offset - run.frame.start);
                at += 1;
            }
            bytes = run.place.saturating_add(run.frame.bytes);
            reads += piece_count(run.frame.bytes);
        }
        assert!(at == self.order.len(), "every part lies in a run");
        self.slot_bytes = self.slot_bytes.max(bytes);
        self.reads_max = self.reads_max.max(reads);
    }

    pub(crate) fn members(&self) -> usize {
        self.group.members as usize
    }

    /// The group's members among those of all groups.
    pub(crate) fn range(&self) -> Range<usize> {
        self.first..self.first + self.members()
    }

    pub(crate) fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }

    pub(crate) fn reads_max(&self) -> usize {
        self.reads_max
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let parts = &self.group.parts;
        let listed: usize = parts.iter().map(Part::heap_bytes).sum();
        size_of::<GroupLayout>()
            + parts.len() * (size_of::<Part>() + size_of::<usize>())
            + listed
            + size_of_val(&self.starts[..])
    }

    /// How many reads one member takes.
    pub(crate) fn reads(&self, member: u32) -> usize {
        self.runs(member).map(|run| piece_count(run.frame.bytes)).sum()
    }

    /// Bytes of one member's reads.
    pub(crate) fn read_bytes(&self, member: u32) -> u64 {
        self.runs(member).map(|run| run.frame.bytes).sum()
    }

    /// The reads of one member, in slot order.
    pub(crate) fn fetches(&self, member: u32) -> impl Iterator<Item = Fetch> + Clone + '_ {
        self.runs(member).flat_map(|run| {
            pieces(run.frame).map(move |mut piece| {
                piece.at += run.place;
                Fetch { file: run.file, piece }
            })
        })
    }

    fn runs(&self, member: u32) -> Runs<'_> {
        Runs { layout: self, member, next: 0, place: 0 }
    }
}

/// The runs of one member, in slot order: each is read as a whole.
#[derive(Clone)]
struct Runs<'a> {
    layout: &'a GroupLayout,
    member: u32,
    /// The place in `order` of the next run's first part.
    next: usize,
    /// Where the next run begins in a slot.
    place: u64,
}

impl Runs<'_> {
    fn extent(&self) -> Option<Extent> {
        let GroupLayout { group, order, .. } = self.layout;
        order.get(self.next).map(|&part| group.parts[part].extent(self.member))
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let mut whole = self.extent()?;
        let framed = |extent: Extent| frame(extent.offset, extent.bytes, self.layout.align);
        let mut run = Run { file: whole.file, frame: framed(whole), place: self.place };
        self.next += 1;
        // A part whose frame begins where the run's ends, or shares its last block, is read with it.
        while let Some(extent) = self.extent() {
            let (end, Frame { start, bytes, .. }) = (whole.offset.saturating_add(whole.bytes), run.frame);
            let touches = framed(extent).start <= start.saturating_add(bytes);
            if extent.file != whole.file || extent.offset < end || !touches {
                break;
            }
            whole.bytes = (extent.offset - whole.offset).saturating_add(extent.bytes);
            run.frame = framed(whole);
            self.next += 1;
        }
        self.place = self.place.saturating_add(run.frame.bytes);
        Some(run)
    }
}

/// The bytes of one resident member, part by part.
#[derive(Clone, Copy)]
pub struct Parts<'a> {
    slot: &'a [u8],
    layout: &'a GroupLayout,
    member: u32,
}

impl<'a> Parts<'a> {
    pub(crate) fn new(slot: &'a [u8], layout: &'a GroupLayout, member: u32) -> Parts<'a> {
        Parts { slot, layout, member }
    }

    /// The member's bytes of part `p`. They begin at an address that is as aligned as their offset in
    /// the file, up to a page.
    pub fn part(&self, p: usize) -> &'a [u8] {
        let parts = &self.layout.group.parts;
        let start = self.layout.starts[self.member as usize * parts.len() + p] as usize;
        &self.slot[start..start + parts[p].member_bytes as usize]
    }

    /// How many parts there are.
    pub fn count(&self) -> usize {
        self.layout.group.parts.len()
    }
}
