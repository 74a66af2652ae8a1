//! What is streamed: groups of equal members, each in a few parts of the files, and where the parts of
//! a member lie in a slot. Must not know which members are resident.

use crate::{
    FileSet, PagerError,
    disk::Fetch,
    layout::{Extent, Frame, frame, piece_count, pieces},
};
use std::ops::Range;

/// One array of equal pieces: member `m` is `member_bytes` from `offset + m * member_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub file: u32,
    pub offset: u64,
    pub member_bytes: u64,
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
    /// Where the frame of each part begins in a slot.
    places: Vec<u64>,
    slot_bytes: u64,
    reads_max: usize,
    /// Number of the group's member 0 when the members of all groups are counted through.
    first: usize,
}

/// Refuses groups that reach beyond the end of their files.
pub(crate) fn check(files: &FileSet, groups: &[Group]) -> Result<(), PagerError> {
    for group in groups {
        for part in &group.parts {
            let bytes = part.member_bytes.saturating_mul(u64::from(group.members));
            files.check(Extent { file: part.file, offset: part.offset, bytes })?;
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
        let mut places = Vec::with_capacity(group.parts.len());
        let mut slot_bytes = 0;
        for part in &group.parts {
            assert!(part.member_bytes > 0, "a part has bytes");
            places.push(slot_bytes);
            let frames = (0..group.members).map(|member| member_frame(part, member, align));
            let widest = frames.map(|frame| frame.bytes).max().expect("a group has members");
            slot_bytes = u64::saturating_add(slot_bytes, widest);
        }
        let mut layout = GroupLayout { group, align, places, slot_bytes, reads_max: 0, first };
        layout.reads_max = (0..layout.group.members).map(|member| layout.reads(member)).max().unwrap_or(0);
        layout
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
        size_of::<GroupLayout>() + self.group.parts.len() * (size_of::<Part>() + size_of::<u64>())
    }

    /// How many reads one member takes.
    pub(crate) fn reads(&self, member: u32) -> usize {
        self.frames(member).map(|(_, _, frame)| piece_count(frame.bytes)).sum()
    }

    /// Bytes of one member's reads.
    pub(crate) fn read_bytes(&self, member: u32) -> u64 {
        self.frames(member).map(|(_, _, frame)| frame.bytes).sum()
    }

    /// The reads of one member, in slot order.
    pub(crate) fn fetches(&self, member: u32) -> impl Iterator<Item = Fetch> + '_ {
        self.frames(member).flat_map(|(part, place, frame)| {
            pieces(frame).map(move |mut piece| {
                piece.at += place;
                Fetch { file: part.file, piece }
            })
        })
    }

    fn frames(&self, member: u32) -> impl Iterator<Item = (&Part, u64, Frame)> {
        let parts = self.group.parts.iter().zip(&self.places);
        parts.map(move |(part, &place)| (part, place, member_frame(part, member, self.align)))
    }
}

fn member_frame(part: &Part, member: u32, align: u64) -> Frame {
    let before = u64::from(member).saturating_mul(part.member_bytes);
    frame(part.offset.saturating_add(before), part.member_bytes, align)
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
        let part = &self.layout.group.parts[p];
        let frame = member_frame(part, self.member, self.layout.align);
        let start = (self.layout.places[p] + frame.skip) as usize;
        &self.slot[start..start + part.member_bytes as usize]
    }

    /// How many parts there are.
    pub fn count(&self) -> usize {
        self.layout.group.parts.len()
    }
}
