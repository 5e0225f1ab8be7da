// SPDX-License-Identifier: GPL-2.0

//! What the shadow memory of a buffer stands for during a chunk of a transfer, and which blocks of
//! it storage drivers took for DMA.
//!
//! Contract sections 9.4 and 10.4.

use crate::{
    abi::BLOCK,
    geometry::Chunk,
    holes::{
        mask,
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
    first: Atomic<u32>,
    blocks: Atomic<u32>,
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
            first: Atomic::new(0),
            blocks: Atomic::new(0),
            started,
        })
    }

    /// Moves it to a chunk of which nothing was done yet.
    pub(crate) fn open(&self, chunk: &Chunk) {
        // Both are multiples of a block inside the shadow memory, of at most 4096 blocks.
        let first = (chunk.at / BLOCK) as u32;
        let blocks = (chunk.len / BLOCK) as u32;
        self.blocks.store(0, Relaxed);
        self.base.store(chunk.base, Relaxed);
        self.first.store(first, Relaxed);
        self.change(first as usize, blocks as usize, |word, mask| word & !mask);
        self.blocks.store(blocks, Release);
    }

    /// Where `len` bytes of shadow memory from byte `at` on are, in bytes from the start of the
    /// pinned memory. `None` unless all are in the chunk.
    pub(crate) fn locate(&self, at: usize, len: usize) -> Option<u64> {
        let blocks = u64::from(self.blocks.load(Acquire));
        let start = u64::from(self.first.load(Relaxed)) * BLOCK;
        let at = at as u64;
        let end = at.checked_add(len as u64)?;
        if at < start || end > start + blocks * BLOCK {
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
        let words = first / 64..(first + count).div_ceil(64);
        for (index, word) in self
            .started
            .iter()
            .enumerate()
            .take(words.end)
            .skip(words.start)
        {
            let mask = mask(index, first, count);
            let mut old = word.load(Relaxed);
            while let Err(now) = word.cmpxchg(old, change(old, mask), Full) {
                old = now;
            }
        }
    }

    /// The runs of blocks of the chunk's first `len` bytes that were not marked, relative to the
    /// chunk's start.
    pub(crate) fn untouched(&self, len: u64) -> impl Iterator<Item = Region> + '_ {
        let first = self.first.load(Relaxed) as usize;
        let blocks = len
            .div_ceil(BLOCK)
            .min(u64::from(self.blocks.load(Relaxed)));
        let word = |index: usize| match self.started.get(index) {
            Some(word) => word.load(Relaxed),
            None => u64::MAX,
        };
        Clear::new(word, first, blocks as usize)
    }

    /// Where the chunk is, in bytes from the start of the pinned memory, and its bytes.
    pub(crate) fn span(&self) -> (u64, u64) {
        let blocks = u64::from(self.blocks.load(Acquire));
        let start = self.base.load(Relaxed).saturating_add(self.start());
        (start, blocks * BLOCK)
    }

    /// Where the chunk begins in the shadow memory, in bytes.
    pub(crate) fn start(&self) -> u64 {
        u64::from(self.first.load(Relaxed)) * BLOCK
    }
}
