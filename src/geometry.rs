// SPDX-License-Identifier: GPL-2.0

//! Where bytes are: GPU ranges and transfers inside them, without overflow. Pure.
//!
//! Contract sections 7.2 (rows 11 and 12), 7.4, 9.1 (rows 15 to 17) and 9.4.

/// Bytes of a GPU page.
pub(crate) const GPU_PAGE: u64 = 65536;

/// Bytes of a block.
pub(crate) const BLOCK: u64 = 4096;

/// A range of GPU memory that can be pinned.
///
/// # Invariants
///
/// `va + size`, rounded up to a GPU page, is at most 2^63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GpuRange {
    va: u64,
    size: u64,
}

impl GpuRange {
    /// The range of `size` bytes at GPU address `va`, for a shadow buffer of `shadow` bytes.
    /// `None` for what MAP must refuse.
    pub(crate) fn new(va: u64, size: i64, shadow: u64) -> Option<Self> {
        let size = u64::try_from(size).ok()?;
        let offset = va % GPU_PAGE;
        if size == 0 && offset == 0 {
            return None;
        }
        let end = va.checked_add(size)?.checked_next_multiple_of(GPU_PAGE)?;
        if end > 1 << 63 {
            return None;
        }
        // A small buffer must be reachable through the shadow buffer as a whole.
        if size < GPU_PAGE && shadow < offset + size {
            return None;
        }
        // INVARIANT: Checked above.
        Some(Self { va, size })
    }

    /// GPU address that the user registered.
    pub(crate) fn va(&self) -> u64 {
        self.va
    }

    /// Bytes that the user registered.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// GPU address at which the pinned pages begin.
    pub(crate) fn pinned_start(&self) -> u64 {
        self.va - self.va % GPU_PAGE
    }

    /// Bytes of the pinned pages.
    pub(crate) fn pinned_len(&self) -> u64 {
        // OVERFLOW: By the type invariant.
        (self.va + self.size).next_multiple_of(GPU_PAGE) - self.pinned_start()
    }

    /// Where a transfer of `size` bytes at `offset` into the range begins, in bytes from the start
    /// of the pinned pages. `None` for what READ and WRITE must refuse.
    pub(crate) fn locate(&self, offset: u64, size: u64) -> Option<u64> {
        let start = (self.va % GPU_PAGE).checked_add(offset)?;
        if start % BLOCK != 0 {
            return None;
        }
        if offset > self.size.checked_sub(size)? {
            return None;
        }
        let in_page = start % GPU_PAGE;
        if in_page != 0 && size > GPU_PAGE - in_page {
            return None;
        }
        Some(start)
    }
}

/// A range of a file, in whole blocks.
///
/// # Invariants
///
/// Both are multiples of a block, and their sum is at most `i64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileRange {
    offset: u64,
    size: u64,
}

impl FileRange {
    /// `None` for what READ and WRITE must refuse: contract section 9.1, rows 1 to 3.
    pub(crate) fn new(offset: i64, size: u64) -> Option<Self> {
        let start = u64::try_from(offset).ok()?;
        if start % BLOCK != 0 || size % BLOCK != 0 {
            return None;
        }
        i64::try_from(start.checked_add(size)?).ok()?;
        // INVARIANT: Checked above.
        Some(Self {
            offset: start,
            size,
        })
    }

    /// Bytes from the start of the file.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }
}

/// How much of a read of `want` bytes at `pos` to ask for, in a file of `file_size` bytes with
/// blocks of `block_size` bytes (a power of two): never past the last block, as the file system
/// would zero the memory behind it.
pub(crate) fn read_len(pos: u64, want: u64, file_size: u64, block_size: u64) -> u64 {
    let left = file_size.saturating_sub(pos);
    left.checked_next_multiple_of(block_size.max(1))
        .map_or(want, |left| left.min(want))
}

/// One chunk of a transfer through a shadow buffer: contract sections 9.4 to 9.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// What the first byte of the shadow buffer stands for, in bytes from the start of the pinned
    /// pages: the start of a GPU page.
    pub(crate) base: u64,
    /// Where the data begins in the shadow buffer, in bytes.
    pub(crate) at: u64,
    /// Bytes of data.
    pub(crate) len: u64,
}

impl Chunk {
    /// The next chunk of a transfer with `left` bytes to go from `start`, which is counted from the
    /// start of the pinned pages, through `shadow` bytes. With `segmented` it stays inside one
    /// piece of GPU memory that is as long as the shadow buffer. `None` for what does not fit. All
    /// are multiples of a block.
    pub(crate) fn new(start: u64, left: u64, shadow: u64, segmented: bool) -> Option<Self> {
        let at = start % GPU_PAGE;
        let room = if segmented {
            shadow - start.checked_rem(shadow)?
        } else {
            shadow
        };
        let len = left.min(room);
        if at != 0 && (at + len > shadow || at + len > GPU_PAGE) {
            return None;
        }
        Some(Self {
            base: start - at,
            at,
            len,
        })
    }
}

/// The most GPU pages that one segment may come to: none goes over a multiple of it, so that
/// its length has 32 bits.
const SEGMENT_PAGES: u64 = 65535;

/// Whether what begins `start` bytes into the pinned memory may be part of a segment that begins
/// before.
pub(crate) fn joins(start: u64) -> bool {
    start == 0 || start % (SEGMENT_PAGES * GPU_PAGE) != 0
}

/// The contiguous piece, of at most `len` bytes, that begins `start` bytes into memory whose GPU
/// pages have the addresses `pages`: its address and length. `None` when it is not all there.
pub(crate) fn run(pages: &[u64], start: u64, len: usize) -> Option<(u64, usize)> {
    let end = start.checked_add(len as u64)?;
    let first = usize::try_from(start / GPU_PAGE).ok()?;
    let last = usize::try_from(end.div_ceil(GPU_PAGE)).ok()?;
    let pages = pages.get(first..last)?;
    let address = pages.first()?.checked_add(start % GPU_PAGE)?;
    let mut room = GPU_PAGE - start % GPU_PAGE;
    for (index, pair) in (start / GPU_PAGE + 1..).zip(pages.windows(2)) {
        let [before, after] = pair else { break };
        if before.checked_add(GPU_PAGE) != Some(*after) || !joins(index * GPU_PAGE) {
            break;
        }
        room += GPU_PAGE;
    }
    Some((address, len.min(usize::try_from(room).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_map_refuses() {
        assert_eq!(GpuRange::new(0x10000, 0, 65536), None);
        assert_eq!(GpuRange::new(0x10000, -1, 65536), None);
        assert_eq!(GpuRange::new(u64::MAX - 100, 1 << 20, 1 << 20), None);
        assert_eq!(GpuRange::new(0x10200, 65535, 65536), None);
        assert!(GpuRange::new(0x10200, 65535, 128 << 10).is_some());
        assert!(GpuRange::new(0x10200, 65536, 4096).is_some());
    }

    #[test]
    fn pages_around_an_unaligned_range() {
        let range = GpuRange::new(0x1_0200, 65536, 1 << 20).unwrap();
        assert_eq!(range.pinned_start(), 0x1_0000);
        assert_eq!(range.pinned_len(), 131072);
        assert_eq!(range.locate(0, 4096), None);
        assert_eq!(range.locate(0xe00, 4096), Some(4096));
    }

    #[test]
    fn reads_stop_at_the_last_block() {
        assert_eq!(read_len(0, 65536, 10000, 4096), 12288);
        assert_eq!(read_len(0, 65536, 10000, 1024), 10240);
        assert_eq!(read_len(16384, 65536, 10000, 4096), 0);
        assert_eq!(read_len(0, 4096, 1 << 40, 4096), 4096);
        assert_eq!(read_len(0, 4096, u64::MAX, 4096), 4096);
    }
}
