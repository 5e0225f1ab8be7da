// SPDX-License-Identifier: GPL-2.0

//! What the shadow memory of a buffer stands for during a chunk of a transfer, and which blocks of
//! it storage drivers took for DMA.
//!
//! Contract sections 9.4 and 10.4.

use crate::{
    abi::BLOCK,
    geometry::Chunk,
    holes::{
        words,
        Clear,
        Region, //
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

/// The window. It is moved by who has the buffer busy, between transfers of the file system; read
/// and marked in any context meanwhile. A reader that comes at the wrong time, which only I/O of the
/// process itself on its shadow memory can, may see a mix of two chunks: an offset, to be checked
/// against the pinned memory like any other.
pub(crate) struct Window {
    base: Atomic<u64>,
    /// The chunk's first block of the shadow memory, and, from bit 32 on, how many it has.
    span: Atomic<u64>,
    /// A bit for each block of the shadow memory: an address was handed out.
    started: KVec<Atomic<u64>>,
}

impl Window {
    /// For `len` bytes of shadow memory. May sleep. Fails with `ENOMEM`.
    pub(crate) fn new(len: u64) -> Result<Self> {
        let words = usize::try_from(len.div_ceil(BLOCK * 64)).map_err(|_| ENOMEM)?;
        let mut started = KVec::with_capacity(words, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..words {
            started.push(Atomic::new(0), GFP_KERNEL_ACCOUNT)?;
        }
        Ok(Self {
            base: Atomic::new(0),
            span: Atomic::new(0),
            started,
        })
    }

    /// Moves it to a chunk of which nothing was done yet.
    pub(crate) fn open(&self, chunk: &Chunk) {
        // Both are multiples of a block inside the shadow memory, of at most 4096 blocks.
        let (first, blocks) = (chunk.at / BLOCK, chunk.len / BLOCK);
        self.span.store(0, Relaxed);
        self.base.store(chunk.base, Relaxed);
        self.change(first as usize, blocks as usize, |word, mask| word & !mask);
        self.span.store(first | blocks << 32, Release);
    }

    /// The chunk's first block, and how many it has.
    #[inline]
    fn blocks(&self) -> (u64, u64) {
        let span = self.span.load(Acquire);
        (span & u64::from(u32::MAX), span >> 32)
    }

    /// Where `len` bytes of shadow memory from byte `at` on are, in bytes from the start of the
    /// pinned memory. `None` unless all are in the chunk.
    pub(crate) fn locate(&self, at: usize, len: usize) -> Option<u64> {
        let (first, blocks) = self.blocks();
        let at = at as u64;
        let end = at.checked_add(len as u64)?;
        if at < first * BLOCK || end > (first + blocks) * BLOCK {
            return None;
        }
        self.base.load(Relaxed).checked_add(at)
    }

    /// Marks the blocks of `len` bytes from byte `at` on.
    pub(crate) fn mark(&self, at: usize, len: usize, started: bool) {
        let Some(end) = at.checked_add(len) else {
            return;
        };
        let first = at / BLOCK as usize;
        let count = end.div_ceil(BLOCK as usize) - first;
        self.change(first, count, |word, mask| {
            if started {
                word | mask
            } else {
                word & !mask
            }
        });
    }

    fn change(&self, first: usize, count: usize, change: impl Fn(u64, u64) -> u64) {
        for (index, mask) in words(first, count) {
            let Some(word) = self.started.get(index) else {
                return;
            };
            let mut old = word.load(Relaxed);
            loop {
                let new = change(old, mask);
                if new == old {
                    break;
                }
                match word.cmpxchg(old, new, Full) {
                    Ok(_) => break,
                    Err(now) => old = now,
                }
            }
        }
    }

    /// Whether all blocks of the chunk's first `len` bytes were marked.
    #[inline]
    pub(crate) fn is_done(&self, len: u64) -> bool {
        let (first, blocks) = self.blocks();
        let blocks = len.div_ceil(BLOCK).min(blocks);
        words(first as usize, blocks as usize).all(|(index, mask)| {
            self.started
                .get(index)
                .is_none_or(|word| word.load(Relaxed) & mask == mask)
        })
    }

    /// The runs of blocks of the chunk's first `len` bytes that were not marked, relative to the
    /// chunk's start.
    pub(crate) fn untouched(&self, len: u64) -> impl Iterator<Item = Region> + '_ {
        let (first, blocks) = self.blocks();
        let blocks = len.div_ceil(BLOCK).min(blocks);
        let word = |index: usize| match self.started.get(index) {
            Some(word) => word.load(Relaxed),
            None => u64::MAX,
        };
        Clear::new(word, first as usize, blocks as usize)
    }

    /// Where the chunk is, in bytes from the start of the pinned memory, and its bytes.
    pub(crate) fn span(&self) -> (u64, u64) {
        let (first, blocks) = self.blocks();
        let start = self.base.load(Relaxed).saturating_add(first * BLOCK);
        (start, blocks * BLOCK)
    }

    /// Where the chunk begins in the shadow memory, in bytes.
    pub(crate) fn start(&self) -> u64 {
        self.blocks().0 * BLOCK
    }
}
