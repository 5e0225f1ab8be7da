// SPDX-License-Identifier: GPL-2.0

//! What the shadow memory of a buffer stands for during a chunk of a transfer, which blocks of it
//! storage drivers took for DMA (or sectors, of file systems with smaller blocks), and whether any
//! was refused.
//!
//! Contract sections 9.4 and 10.4.

use crate::{
    abi::BLOCK,
    geometry::Chunk,
    holes::{
        only_word,
        words,
        Clear, //
    },
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Full,
        Relaxed,
        Release, //
    },
};
use nvfs_kernel::alloc::GFP_CHARGED;

/// The window. It is moved by who has the buffer busy, between transfers of the file system; read
/// and marked in any context meanwhile. A reader that comes at the wrong time, which only I/O of the
/// process itself on its shadow memory can, may see a mix of two chunks: an offset, to be checked
/// against the pinned memory like any other.
pub(crate) struct Window {
    base: Atomic<u64>,
    /// See [`Span`].
    span: Atomic<u64>,
    /// A bit for each unit of the shadow memory: an address was handed out.
    started: KVec<Atomic<u64>>,
}

/// What of a file may be a hole by itself, if that is less than a block.
const SECTOR: u64 = 512;

/// The chunk of a window, as one number: its first block of the shadow memory, from bit 32 on how
/// many it has, and two flags.
#[derive(Clone, Copy)]
struct Span(u64);

/// Units are sectors, not blocks.
const FINE: u64 = 1 << 63;
/// An address was asked for in vain.
const REFUSED: u64 = 1 << 62;

impl Span {
    fn first(self) -> u64 {
        self.0 & u64::from(u32::MAX)
    }

    fn blocks(self) -> u64 {
        (self.0 & !(FINE | REFUSED)) >> 32
    }

    /// The bytes of a unit, as a power of two.
    fn shift(self) -> u32 {
        if self.0 & FINE != 0 {
            SECTOR.trailing_zeros()
        } else {
            BLOCK.trailing_zeros()
        }
    }

    /// The units that `len` bytes from byte `at` on are in: the first one, and how many.
    fn units_of(self, at: u64, len: u64) -> (usize, usize) {
        let shift = self.shift();
        let first = at >> shift;
        let last = at.saturating_add(len).wrapping_sub(1) >> shift;
        let count = if len == 0 {
            0
        } else {
            last.wrapping_sub(first).wrapping_add(1)
        };
        (first as usize, count as usize)
    }

    /// The units of the chunk's first `len` bytes: the first one, and how many.
    fn units(self, len: u64) -> (usize, usize) {
        self.units_of(self.first() * BLOCK, len.min(self.blocks() * BLOCK))
    }
}

impl Window {
    /// For `len` bytes of shadow memory. May sleep. Fails with `ENOMEM`.
    pub(crate) fn new(len: u64) -> Result<Self> {
        let words = usize::try_from(len.div_ceil(SECTOR * 64)).map_err(|_| ENOMEM)?;
        let mut started = KVec::with_capacity(words, GFP_CHARGED)?;
        for _ in 0..words {
            started.push(Atomic::new(0), GFP_CHARGED)?;
        }
        Ok(Self {
            base: Atomic::new(0),
            span: Atomic::new(0),
            started,
        })
    }

    /// Moves it to a chunk of which nothing was done yet. `fine`: less than a block of it may be a
    /// hole.
    pub(crate) fn open(&self, chunk: &Chunk, fine: bool) {
        // Both are multiples of a block inside the shadow memory, of at most 4096 blocks.
        let span = Span(chunk.at / BLOCK | (chunk.len / BLOCK) << 32 | if fine { FINE } else { 0 });
        self.span.store(0, Relaxed);
        self.base.store(chunk.base, Relaxed);
        let (first, count) = span.units(chunk.len);
        self.change(first, count, |word, mask| word & !mask);
        self.span.store(span.0, Release);
    }

    #[inline]
    fn span(&self) -> Span {
        Span(self.span.load(Acquire))
    }

    /// Where `len` bytes of shadow memory from byte `at` on are, in bytes from the start of the
    /// pinned memory. `None` unless all are in the chunk.
    pub(crate) fn locate(&self, at: usize, len: usize) -> Option<u64> {
        let span = self.span();
        let at = at as u64;
        let end = at.checked_add(len as u64)?;
        if at < span.first() * BLOCK || end > (span.first() + span.blocks()) * BLOCK {
            return None;
        }
        self.base.load(Relaxed).checked_add(at)
    }

    /// Addresses were handed out for `len` bytes from byte `at` on.
    pub(crate) fn mark(&self, at: usize, len: usize) {
        let (first, count) = self.span().units_of(at as u64, len as u64);
        self.change(first, count, |word, mask| word | mask);
    }

    /// These bytes will not be moved. A driver may not heed that, so it is remembered even if it asks
    /// once more.
    pub(crate) fn refuse(&self, at: usize, len: usize) {
        let mut old = self.span.load(Relaxed);
        while let Err(now) = self.span.cmpxchg(old, old | REFUSED, Full) {
            old = now;
        }
        let (first, count) = Span(old).units_of(at as u64, len as u64);
        self.change(first, count, |word, mask| word & !mask);
    }

    fn change(&self, first: usize, count: usize, change: impl Fn(u64, u64) -> u64) {
        // Most are.
        if let Some((index, mask)) = only_word(first, count) {
            return self.change_word(index, |word| change(word, mask));
        }
        for (index, mask) in words(first, count) {
            self.change_word(index, |word| change(word, mask));
        }
    }

    #[inline]
    fn change_word(&self, index: usize, change: impl Fn(u64) -> u64) {
        let Some(word) = self.started.get(index) else {
            return;
        };
        let mut old = word.load(Relaxed);
        loop {
            let new = change(old);
            if new == old {
                break;
            }
            match word.cmpxchg(old, new, Full) {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
    }

    /// Whether all of the chunk's first `len` bytes were marked, and none was refused.
    #[inline]
    pub(crate) fn is_done(&self, len: u64) -> bool {
        let span = self.span();
        let (first, count) = span.units(len);
        let is_set = |(index, mask): (usize, u64)| {
            self.started
                .get(index)
                .is_none_or(|word| word.load(Relaxed) & mask == mask)
        };
        if span.0 & REFUSED != 0 {
            return false;
        }
        match only_word(first, count) {
            Some(word) => is_set(word),
            None => words(first, count).all(is_set),
        }
    }

    /// Whether some of it was refused.
    pub(crate) fn is_refused(&self) -> bool {
        self.span().0 & REFUSED != 0
    }

    /// The runs of bytes among the chunk's first `len` that were not marked, relative to the chunk's
    /// start; in whole units, also behind `len`.
    pub(crate) fn untouched(&self, len: u64) -> impl Iterator<Item = core::ops::Range<u64>> + '_ {
        let span = self.span();
        let (first, count) = span.units(len);
        let word = |index: usize| match self.started.get(index) {
            Some(word) => word.load(Relaxed),
            None => u64::MAX,
        };
        Clear::new(word, first, count).map(move |region| {
            let start = u64::from(region.start) << span.shift();
            start..start + (u64::from(region.blocks) << span.shift())
        })
    }

    /// Where the chunk is, in bytes from the start of the pinned memory, and its bytes.
    pub(crate) fn chunk(&self) -> (u64, u64) {
        let span = self.span();
        let start = self.base.load(Relaxed).saturating_add(span.first() * BLOCK);
        (start, span.blocks() * BLOCK)
    }

    /// Where the chunk begins in the shadow memory, in bytes.
    pub(crate) fn start(&self) -> u64 {
        self.span().first() * BLOCK
    }
}
