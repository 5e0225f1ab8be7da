// SPDX-License-Identifier: GPL-2.0

//! Lists of physical memory ranges: joining neighbours, finding a byte again.
//!
//! Pure: imports `core` alone, so the host's tests can include this file.

/// A range of physical addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Address of the first byte.
    pub phys: u64,
    /// Bytes.
    pub len: usize,
}

impl Extent {
    /// Address just past the last byte; `None` when that is past the address space.
    pub fn end(&self) -> Option<u64> {
        self.phys.checked_add(u64::try_from(self.len).ok()?)
    }

    /// The part up to and with address `last`, and what is left behind it. An extent that begins
    /// past `last` is left whole, with an empty first part.
    pub fn split_after(self, last: u64) -> (Self, Option<Self>) {
        let room = match last.checked_sub(self.phys) {
            // A room that is larger than memory can be holds any extent.
            Some(bytes) => usize::try_from(bytes).map_or(usize::MAX, |n| n.saturating_add(1)),
            None => 0,
        };
        let len = self.len.min(room);
        let first = Self { len, ..self };
        let rest = match (self.len.checked_sub(len), first.end()) {
            (Some(len), Some(phys)) if len != 0 => Some(Self { phys, len }),
            _ => None,
        };
        (first, rest)
    }
}

/// An extent is empty, or runs past the end of the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// The extents in the same order, those that follow one another in memory joined.
#[derive(Clone)]
pub struct Joined<'a> {
    rest: &'a [Extent],
}

/// Joins neighbours of a list; ends after the first malformed extent.
pub fn joined(extents: &[Extent]) -> Joined<'_> {
    Joined { rest: extents }
}

impl Iterator for Joined<'_> {
    type Item = Result<Extent, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let (first, mut rest) = self.rest.split_first()?;
        let mut whole = *first;
        let Some(mut end) = whole.end().filter(|_| whole.len != 0) else {
            self.rest = &[];
            return Some(Err(Malformed));
        };
        while let Some((next, more)) = rest.split_first() {
            if next.phys != end {
                break;
            }
            let (Some(len), Some(next_end)) = (whole.len.checked_add(next.len), next.end()) else {
                break;
            };
            whole.len = len;
            end = next_end;
            rest = more;
        }
        self.rest = rest;
        Some(Ok(whole))
    }
}

/// Finds byte `offset` of a buffer of `len` bytes that is made of pieces, the first byte of each
/// of which is at `starts` (ascending, the first is 0): the piece, and how far in it.
///
/// Costs the logarithm of the number of pieces.
pub fn locate(starts: &[usize], len: usize, offset: usize) -> Option<(usize, usize)> {
    if offset >= len {
        return None;
    }
    let index = starts
        .partition_point(|start| *start <= offset)
        .checked_sub(1)?;
    let skip = offset.checked_sub(*starts.get(index)?)?;
    Some((index, skip))
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(not(test), kernel::macros::kunit_tests(nvfs_extents))]
mod tests {
    use super::*;

    fn extent(phys: u64, len: usize) -> Extent {
        Extent { phys, len }
    }

    #[test]
    fn neighbours_are_joined_in_order() {
        let list = [
            extent(0x1000, 0x1000),
            extent(0x2000, 0x1000),
            extent(0x1000, 0x1000),
            extent(0x8000, 0x3000),
            extent(0xb000, 0x1000),
        ];
        let mut it = joined(&list);
        assert_eq!(it.next(), Some(Ok(extent(0x1000, 0x2000))));
        assert_eq!(it.next(), Some(Ok(extent(0x1000, 0x1000))));
        assert_eq!(it.next(), Some(Ok(extent(0x8000, 0x4000))));
        assert_eq!(it.next(), None);
        assert_eq!(joined(&[]).next(), None);
    }

    #[test]
    fn malformed_extents_end_the_list() {
        let list = [extent(0x1000, 0), extent(0x1000, 1)];
        let mut it = joined(&list);
        assert_eq!(it.next(), Some(Err(Malformed)));
        assert_eq!(it.next(), None);
        assert_eq!(joined(&[extent(u64::MAX, 2)]).next(), Some(Err(Malformed)));
        // An overflow in a neighbour is found when its turn comes.
        let list = [extent(u64::MAX - 4, 2), extent(u64::MAX - 2, 9)];
        let mut it = joined(&list);
        assert_eq!(it.next(), Some(Ok(extent(u64::MAX - 4, 2))));
        assert_eq!(it.next(), Some(Err(Malformed)));
    }

    #[test]
    fn an_empty_neighbour_vanishes() {
        let list = [extent(0x1000, 0x1000), extent(0x2000, 0), extent(0x2000, 8)];
        let mut it = joined(&list);
        assert_eq!(it.next(), Some(Ok(extent(0x1000, 0x1008))));
        assert_eq!(it.next(), None);
    }

    #[test]
    fn split() {
        let e = extent(0x1000, 0x3000);
        assert_eq!(
            e.split_after(0x1fff),
            (extent(0x1000, 0x1000), Some(extent(0x2000, 0x2000)))
        );
        assert_eq!(e.split_after(0x3fff), (e, None));
        assert_eq!(e.split_after(u64::MAX), (e, None));
        assert_eq!(e.split_after(0xfff), (extent(0x1000, 0), Some(e)));
        assert_eq!(extent(0, 5).split_after(u64::MAX), (extent(0, 5), None));
    }

    #[test]
    fn bytes_are_found() {
        let starts = [0, 10, 30];
        assert_eq!(locate(&starts, 31, 0), Some((0, 0)));
        assert_eq!(locate(&starts, 31, 9), Some((0, 9)));
        assert_eq!(locate(&starts, 31, 10), Some((1, 0)));
        assert_eq!(locate(&starts, 31, 29), Some((1, 19)));
        assert_eq!(locate(&starts, 31, 30), Some((2, 0)));
        assert_eq!(locate(&starts, 31, 31), None);
        assert_eq!(locate(&[], 0, 0), None);
        assert_eq!(locate(&[], 1, 0), None);
    }
}
