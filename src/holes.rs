// SPDX-License-Identifier: GPL-2.0

//! Which blocks of a chunk were not moved by DMA: holes, if the file system had nothing to read
//! there. Pure.
//!
//! Contract sections 8.4 and 10.4.

use crate::geometry::BLOCK;

/// The most regions that the meta block has room for.
pub(crate) const MAX_REGIONS: usize = 768;

/// Blocks in a row, counted from the start of the chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) start: u16,
    pub(crate) blocks: u16,
}

impl Region {
    /// The whole blocks that are just these bytes of a chunk, of which the file has `end`: the last
    /// block may be cut short by that.
    pub(crate) fn of_bytes(bytes: core::ops::Range<u64>, end: u64) -> Option<Self> {
        let whole = bytes.start % BLOCK == 0 && (bytes.end % BLOCK == 0 || bytes.end >= end);
        if !whole {
            return None;
        }
        let (start, end) = (bytes.start / BLOCK, bytes.end.div_ceil(BLOCK));
        Some(Self {
            start: u16::try_from(start).ok()?,
            blocks: u16::try_from(end.checked_sub(start)?).ok()?,
        })
    }
}

/// The word of 64 bits that `count` bits from bit `first` on are in, and a mask of them, if it is one.
#[inline]
pub(crate) fn only_word(first: usize, count: usize) -> Option<(usize, u64)> {
    let bit = first % 64;
    // `bit` is less than 64.
    let room = 64_usize.wrapping_sub(bit);
    if count == 0 || count > room {
        return None;
    }
    let mask = u64::MAX.wrapping_shr(64_u32.wrapping_sub(count as u32)) << bit;
    Some((first / 64, mask))
}

/// The words of 64 bits that `count` bits from bit `first` on are in, and a mask of them for each.
#[inline]
pub(crate) fn words(first: usize, count: usize) -> impl Iterator<Item = (usize, u64)> {
    let (mut at, mut left) = (first, count);
    core::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let bit = at % 64;
        let bits = left.min(64 - bit);
        let word = (at / 64, u64::MAX.wrapping_shr(64 - bits as u32) << bit);
        at = at.wrapping_add(bits);
        left -= bits;
        Some(word)
    })
}

/// The runs of clear bits among `count` bits from bit `first` on, counted from `first`. `word`
/// gives the words of 64 bits.
pub(crate) struct Clear<F> {
    word: F,
    first: usize,
    end: usize,
    at: usize,
}

impl<F: Fn(usize) -> u64> Clear<F> {
    pub(crate) fn new(word: F, first: usize, count: usize) -> Self {
        Self {
            word,
            first,
            end: first + count,
            at: first,
        }
    }

    /// The next bit from `at` on that is as wanted, or the end.
    fn next_bit(&self, set: bool) -> usize {
        let mut at = self.at;
        while at < self.end {
            let word = (self.word)(at / 64);
            let wanted = (if set { word } else { !word }) >> (at % 64);
            if wanted != 0 {
                at += wanted.trailing_zeros() as usize;
                break;
            }
            at = (at / 64 + 1) * 64;
        }
        at.min(self.end)
    }
}

impl<F: Fn(usize) -> u64> Iterator for Clear<F> {
    type Item = Region;

    fn next(&mut self) -> Option<Region> {
        let start = self.next_bit(false);
        if start >= self.end {
            return None;
        }
        self.at = start;
        self.at = self.next_bit(true);
        Some(Region {
            start: u16::try_from(start - self.first).ok()?,
            blocks: u16::try_from(self.at - start).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clear(words: &[u64], first: usize, count: usize) -> std::vec::Vec<(u16, u16)> {
        Clear::new(|i| words[i], first, count)
            .map(|region| (region.start, region.blocks))
            .collect()
    }

    #[test]
    fn runs() {
        assert_eq!(clear(&[0], 0, 16), [(0, 16)]);
        assert_eq!(clear(&[u64::MAX], 0, 64), []);
        assert_eq!(clear(&[0b1011], 0, 5), [(2, 1), (4, 1)]);
        assert_eq!(clear(&[0b1011], 2, 2), [(0, 1)]);
        assert_eq!(clear(&[1 << 63, 1], 0, 128), [(0, 63), (65, 63)]);
        assert_eq!(clear(&[u64::MAX, 0, u64::MAX], 60, 80), [(4, 64)]);
    }

    #[test]
    fn masks() {
        assert_eq!(only_word(0, 64), Some((0, u64::MAX)));
        assert_eq!(only_word(60, 4), Some((0, 0xf << 60)));
        assert_eq!(only_word(60, 5), None);
        assert_eq!(only_word(130, 1), Some((2, 4)));
        assert_eq!(only_word(3, 0), None);
        let all = |first, count| words(first, count).collect::<std::vec::Vec<_>>();
        assert_eq!(all(0, 64), [(0, u64::MAX)]);
        assert_eq!(all(60, 8), [(0, 0xf << 60), (1, 0xf)]);
        assert_eq!(all(63, 66), [(0, 1 << 63), (1, u64::MAX), (2, 1)]);
        assert_eq!(all(130, 1), [(2, 4)]);
        assert_eq!(all(3, 0), []);
    }
}
