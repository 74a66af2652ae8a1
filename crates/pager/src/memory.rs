//! Fixed memory, carved once: page-aligned, zeroed, counted. Must not know who fills it.

use crate::PagerError;
use std::{
    io,
    ops::{Deref, DerefMut},
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

/// Where every buffer begins and what its size is rounded up to.
pub const PAGE_BYTES: usize = 4096;

/// From this size on the system is asked for huge pages: a token walks through all of it, and the
/// misses of small pages in the TLB would cost more than the arithmetic on them.
#[cfg(target_os = "linux")]
const HUGE_FROM_BYTES: usize = 4 << 20;

/// Gives an empty buffer an address that is aligned like any other.
#[repr(align(4096))]
struct Page;

static LIVE_BYTES: AtomicU64 = AtomicU64::new(0);

/// Zeroed memory that begins on a page, never grows and never moves. Untouched pages cost nothing yet.
#[derive(Debug)]
pub struct AlignedBuf {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the buffer owns its memory as a Box<[u8]> would; shared access only reads.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above: `&AlignedBuf` gives `&[u8]` and nothing more.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    pub fn new(bytes: usize) -> Result<AlignedBuf, PagerError> {
        let refused = |source| PagerError::Memory { bytes: bytes as u64, source };
        if bytes == 0 {
            return Ok(AlignedBuf { start: NonNull::<Page>::dangling().cast(), bytes: 0 });
        }
        if bytes > isize::MAX as usize - PAGE_BYTES {
            return Err(refused(io::Error::from(io::ErrorKind::OutOfMemory)));
        }
        let start = map(mapped_bytes(bytes)).map_err(refused)?;
        LIVE_BYTES.fetch_add(mapped_bytes(bytes) as u64, Ordering::Relaxed);
        Ok(AlignedBuf { start, bytes })
    }

    /// All memory held by buffers of this process now, in whole pages. For checking a plan.
    pub fn live_bytes() -> u64 {
        LIVE_BYTES.load(Ordering::Relaxed)
    }

    /// The buffer as floats; a tail of fewer than four bytes is left out.
    pub fn as_f32(&self) -> &[f32] {
        let whole = self.bytes / 4 * 4;
        bytemuck::cast_slice(&self[..whole])
    }

    /// As `as_f32`, for writing.
    pub fn as_f32_mut(&mut self) -> &mut [f32] {
        let whole = self.bytes / 4 * 4;
        bytemuck::cast_slice_mut(&mut self[..whole])
    }
}

fn mapped_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_BYTES)
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is ours for `bytes` bytes, zeroed at birth; `&self` shares it for reading.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: `start` is ours for `bytes` bytes, zeroed at birth; `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let mapped = mapped_bytes(self.bytes);
            // SAFETY: `map` gave exactly these bytes, and nothing borrows them any more.
            unsafe { unmap(self.start, mapped) };
            LIVE_BYTES.fetch_sub(mapped as u64, Ordering::Relaxed);
        }
    }
}

#[cfg(unix)]
fn map(bytes: usize) -> io::Result<NonNull<u8>> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh private mapping at an address of the kernel's choice touches no other memory.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE)? };
    #[cfg(target_os = "linux")]
    if bytes >= HUGE_FROM_BYTES {
        // A refusal costs speed only.
        // SAFETY: the advice changes how this fresh mapping is backed, not what it holds.
        let _ = unsafe { rustix::mm::madvise(start, bytes, rustix::mm::Advice::LinuxHugepage) };
    }
    NonNull::new(start.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
}

/// # Safety
/// `start` and `bytes` must be what `map` returned, with no borrow left.
#[cfg(unix)]
unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
    // SAFETY: passed on to the caller. Fails only for arguments that `map` cannot have returned.
    let unmapped = unsafe { rustix::mm::munmap(start.as_ptr().cast(), bytes) };
    debug_assert!(unmapped.is_ok());
}

#[cfg(not(unix))]
fn map(bytes: usize) -> io::Result<NonNull<u8>> {
    let layout = std::alloc::Layout::from_size_align(bytes, PAGE_BYTES).map_err(io::Error::other)?;
    // SAFETY: the layout's size is not zero: callers round a positive size up to pages.
    let start = unsafe { std::alloc::alloc_zeroed(layout) };
    NonNull::new(start).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
}

/// # Safety
/// `start` and `bytes` must be what `map` returned, with no borrow left.
#[cfg(not(unix))]
unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
    let layout =
        std::alloc::Layout::from_size_align(bytes, PAGE_BYTES).expect("the layout that was allocated");
    // SAFETY: passed on to the caller: the same layout as in `map`.
    unsafe { std::alloc::dealloc(start.as_ptr(), layout) };
}

/// Memory that the I/O threads write and the engine reads, frame by frame. Who may touch a frame is
/// decided by its slot's state (`slot.rs`), which the callers of the two unsafe functions vouch for.
pub(crate) struct Frames {
    buffer: AlignedBuf,
}

impl Frames {
    pub(crate) fn new(buffer: AlignedBuf) -> Frames {
        Frames { buffer }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.buffer.bytes
    }

    pub(crate) fn into_buffer(self) -> AlignedBuf {
        self.buffer
    }

    /// The address of `bytes` bytes from `start`, all inside the memory.
    pub(crate) fn pointer(&self, start: usize, bytes: usize) -> *mut u8 {
        assert!(start <= self.bytes() && bytes <= self.bytes() - start, "a frame lies inside the memory");
        // SAFETY: `start` is at most the length of the allocation, as the assertion says.
        unsafe { self.buffer.start.as_ptr().add(start) }
    }

    /// # Safety
    /// Nobody may write these bytes while the slice lives.
    pub(crate) unsafe fn shared(&self, start: usize, bytes: usize) -> &[u8] {
        // SAFETY: in bounds by `pointer`; the caller vouches that nobody writes.
        unsafe { std::slice::from_raw_parts(self.pointer(start, bytes), bytes) }
    }

    /// # Safety
    /// Nobody else may read or write these bytes while the slice lives.
    #[allow(clippy::mut_from_ref)] // the slots' states, not the borrow checker, keep frames apart
    pub(crate) unsafe fn exclusive(&self, start: usize, bytes: usize) -> &mut [u8] {
        // SAFETY: in bounds by `pointer`; the caller vouches for being alone.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(start, bytes), bytes) }
    }

    /// Gives whole pages back to the system, where it takes them; they read as zeros afterwards.
    ///
    /// # Safety
    /// Nobody else may read or write these bytes meanwhile.
    pub(crate) unsafe fn release(&self, start: usize, bytes: usize) {
        assert!(start.is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES), "whole pages");
        let _pages = self.pointer(start, bytes);
        #[cfg(target_os = "linux")]
        {
            use rustix::mm::{Advice, madvise};
            // A refusal only means that the memory stays taken.
            // SAFETY: the pages are ours and private; the caller vouches that nobody uses what they hold.
            let _ = unsafe { madvise(_pages.cast(), bytes, Advice::LinuxDontNeed) };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_zeroed_counted_and_writable() {
        for bytes in [1, 3, 4096, 4097, (4 << 20) + 5] {
            let mut buffer = AlignedBuf::new(bytes).unwrap();
            assert!(AlignedBuf::live_bytes() >= bytes as u64);
            assert_eq!(buffer.len(), bytes);
            assert_eq!(buffer.as_ptr() as usize % PAGE_BYTES, 0);
            assert!(buffer.iter().all(|&byte| byte == 0));
            buffer[bytes - 1] = 7;
            assert_eq!(buffer[bytes - 1], 7);
            assert_eq!(buffer.as_f32_mut().len(), bytes / 4);
            assert_eq!(buffer.as_f32().len(), bytes / 4);
        }
    }

    #[test]
    fn an_empty_buffer_and_an_impossible_one() {
        let mut empty = AlignedBuf::new(0).unwrap();
        assert!(empty.is_empty() && empty.as_f32().is_empty() && empty.as_f32_mut().is_empty());
        assert!(matches!(AlignedBuf::new(usize::MAX), Err(PagerError::Memory { .. })));
        assert!(matches!(AlignedBuf::new(isize::MAX as usize - 8192), Err(PagerError::Memory { .. })));
    }
}
