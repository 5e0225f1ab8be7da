// SPDX-License-Identifier: GPL-2.0

//! A part of a transfer: what is asked of the file system in one call, and, where the data goes
//! through shadow memory, what its end means.
//!
//! Contract sections 9.4 to 9.6, 10.4 and 10.5.

use super::check::Request;
use crate::{
    buffer::{
        Binding,
        Buffer,
        SHADOWS, //
    },
    counters::Total,
    geometry::{
        read_len,
        Chunk, //
    },
    holes::{
        Region,
        MAX_REGIONS, //
    },
    path::{
        Route,
        Way, //
    },
    stats::Counter, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};
use nvfs_kernel::{
    fault::{
        self,
        Point, //
    },
    kiocb::{
        Direction,
        Segment, //
    },
    reaper::Reaped,
};

/// One call of the file system.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// File offset, in bytes.
    pub(super) pos: i64,
    /// A result of fewer bytes means that there are no more.
    pub(super) want: u64,
    place: Place,
    direction: Direction,
    /// The file has fewer blocks than its size takes.
    looks_sparse: bool,
}

#[derive(Clone, Copy)]
enum Place {
    /// `ask` bytes of P2PDMA pages, `offset` bytes from the start of the pinned memory; for a disk
    /// with an I/O scheduler or not.
    Gpu {
        offset: u64,
        ask: u64,
        scheduled: bool,
    },
    /// The chunk, in the shadow memory at a user address; `on_disk`: of a file on a local disk, with
    /// an I/O scheduler or not.
    Shadow {
        address: u64,
        chunk: Chunk,
        on_disk: bool,
        scheduled: bool,
        /// Its file system has blocks of less than 4 KiB.
        fine: bool,
    },
}

impl Part {
    /// What comes after the first `done` bytes: at most `most` bytes of it. `EIO` for what does not
    /// fit through the shadow memory.
    #[inline(always)] // Its result is large.
    pub(super) fn next(request: &Request, route: Route, done: u64, most: u64) -> Result<Self> {
        if fault::fires(Point::RwVerifyArea) {
            return Err(EFAULT);
        }
        let left = request.range.size() - done;
        let pos = request.range.offset() + done;
        let offset = request.gpu_offset + done;
        let file = &request.file;
        let (want, place, looks_sparse) = match route.way {
            Way::P2pdma => {
                let want = left.min(most);
                let ask = match request.direction {
                    Direction::Read => read_len(pos, want, file.size(), file.block_size()),
                    Direction::Write => want,
                };
                let place = Place::Gpu {
                    offset,
                    ask,
                    scheduled: route.scheduled,
                };
                (want, place, false)
            }
            Way::Callback => {
                let shadow = request.busy.buffer().binding()?.shadow_len;
                let chunk = Chunk::new(offset, left, shadow, request.segmented).ok_or(EIO)?;
                let place = Place::Shadow {
                    address: request.cpuvaddr,
                    chunk,
                    on_disk: route.on_disk,
                    scheduled: route.scheduled,
                    fine: route.fine,
                };
                let looks_sparse = request.direction == Direction::Read
                    && !file.is_block_device()
                    && file.looks_sparse();
                (chunk.len, place, looks_sparse)
            }
        };
        Ok(Self {
            pos: i64::try_from(pos).map_err(|_| EINVAL)?,
            want,
            place,
            direction: request.direction,
            looks_sparse,
        })
    }

    /// There is nothing to be moved.
    pub(super) fn is_empty(&self) -> bool {
        match self.place {
            Place::Gpu { ask, .. } => ask == 0,
            Place::Shadow { chunk, .. } => chunk.len == 0,
        }
    }

    /// Makes the buffer ready for it; to be called before the file system is. Returns the memory.
    /// May sleep.
    #[inline(always)] // As for `next`.
    pub(super) fn open(&self, buffer: &Reaped<Buffer>) -> Result<Segment> {
        let binding = buffer.binding()?;
        match self.place {
            Place::Gpu {
                offset,
                ask,
                scheduled,
            } => {
                buffer.count_dma();
                let memory = buffer.memory().ok_or(EINVAL)?;
                memory.segment(offset, ask, scheduled).ok_or(EINVAL)
            }
            Place::Shadow {
                address,
                chunk,
                on_disk,
                scheduled,
                fine,
            } => {
                binding.window.open(&chunk, fine);
                let len = usize::try_from(chunk.len).map_err(|_| EINVAL)?;
                // Where the block layer gets them as they are, pages need not be looked up in the
                // process and pinned one by one. Drivers of network file systems may want just that.
                if on_disk {
                    let at = usize::try_from(chunk.at).map_err(|_| EINVAL)?;
                    let memory = buffer.shadow().lend(&SHADOWS, buffer, at, len)?;
                    return Ok(Segment::shadow(memory, scheduled));
                }
                let address = address.checked_add(chunk.at).ok_or(EINVAL)?;
                let address = usize::try_from(address).map_err(|_| EINVAL)?;
                Ok(Segment::user(address, len))
            }
        }
    }

    /// What the file system's result means if storage drivers took all for DMA. `None` if they may not
    /// have, and the shadow memory is to be looked at. Call it while the buffer is still busy; the marks
    /// are looked at once, as requests that are no part of the transfer can take some away meanwhile.
    /// Callable in any context.
    #[inline]
    pub(super) fn settle_at_once(
        &self,
        buffer: &Buffer,
        result: Result<usize>,
    ) -> Option<Result<usize>> {
        let (Place::Shadow { .. }, Ok(bytes), Ok(binding)) = (self.place, result, buffer.binding())
        else {
            return Some(result);
        };
        if !binding.window.is_done(bytes as u64) {
            return None;
        }
        if self.looks_sparse {
            self.tell_holes(buffer, binding, 0);
        }
        Some(result)
    }

    /// What the file system's result means: bytes that are in GPU memory or were read from it, and
    /// whether holes were told. Call it while the buffer is still busy. May sleep.
    #[inline]
    pub(super) fn settle(&self, buffer: &Buffer, result: Result<usize>) -> (Result<usize>, bool) {
        let (Place::Shadow { .. }, Ok(bytes), Ok(binding)) = (self.place, result, buffer.binding())
        else {
            return (result, false);
        };
        if !self.looks_sparse && binding.window.is_done(bytes as u64) {
            return (result, false);
        }
        match self.examine(buffer, binding, bytes) {
            Ok((bytes, holes)) => (Ok(bytes), holes),
            Err(e) => (Err(e), false),
        }
    }

    /// Tells of holes, of which so many are in the meta block, or that there are none in what looked as
    /// if it had some. Callable in any context.
    fn tell_holes(&self, buffer: &Buffer, binding: &Binding, regions: usize) {
        if self.direction == Direction::Read {
            if self.looks_sparse {
                buffer.driver.stats.count(Counter::SparseReads);
            }
            if regions > 0 || self.looks_sparse {
                binding.meta.holes(regions, self.pos);
            }
        }
    }

    /// Its memory was given to the file system as it is.
    fn is_lent(&self) -> bool {
        matches!(self.place, Place::Shadow { on_disk: true, .. })
    }

    /// What it means that storage drivers did not take all, or may not have taken all.
    #[inline(never)]
    fn examine(&self, buffer: &Buffer, binding: &Binding, bytes: usize) -> Result<(usize, bool)> {
        let stats = &buffer.driver.stats;
        let mut told = bytes;
        let (mut regions, mut blocks) = (0, 0);
        // What was refused may have been written from shadow memory, even if a later try was not.
        if self.direction == Direction::Write && binding.window.is_refused() {
            return Err(EIO);
        }
        for bytes in binding.window.untouched(told as u64) {
            // Of a buffer that was unmapped, the file system may have found other memory there, where
            // it looked pages up in the process.
            if self.direction == Direction::Write || !(self.is_lent() || buffer.may_continue()) {
                return Err(EIO);
            }
            if regions == MAX_REGIONS {
                told = told.min(bytes.start as usize);
                break;
            }
            let at = binding.window.start() + bytes.start;
            let len = bytes.end - bytes.start;
            if !buffer.shadow().is_zero(at as usize, len as usize) {
                // The file system put data there by the CPU, or by DMA to host memory.
                return Err(EIO);
            }
            // The table has whole blocks. The last one may go on behind the end of the file.
            let region = Region::of_bytes(bytes, told as u64).ok_or(EIO)?;
            binding.meta.hole(regions, region);
            regions += 1;
            blocks += u64::from(region.blocks);
        }
        self.tell_holes(buffer, binding, regions);
        if regions > 0 {
            stats.add(Counter::SparseHoles, regions as u64);
            stats.add(Counter::SparsePages, blocks);
            let totals = &buffer.driver.totals;
            totals.add(Total::Holes, regions as u64);
            totals.add(Total::HoleBlocks, blocks);
        }
        Ok((told, regions > 0))
    }
}

/// Room for the part that is under way, where its completion finds it. Written by who has the buffer
/// busy.
pub(crate) struct Kept {
    pos: Atomic<i64>,
    want: Atomic<u64>,
    bits: Atomic<u32>,
    result: Atomic<i64>,
}

const SHADOW: u32 = 1;
const WRITE: u32 = 2;
const SPARSE: u32 = 4;
const LENT: u32 = 8;

impl Kept {
    /// Nothing is under way.
    pub(crate) fn new() -> Self {
        Self {
            pos: Atomic::new(0),
            want: Atomic::new(0),
            bits: Atomic::new(0),
            result: Atomic::new(0),
        }
    }

    pub(super) fn store(&self, part: &Part) {
        let shadow = matches!(part.place, Place::Shadow { .. });
        let bits = [
            (SHADOW, shadow),
            (WRITE, part.direction == Direction::Write),
            (SPARSE, part.looks_sparse),
            (LENT, part.is_lent()),
        ];
        let bits = bits
            .iter()
            .filter(|bit| bit.1)
            .fold(0, |all, bit| all | bit.0);
        self.pos.store(part.pos, Relaxed);
        self.want.store(part.want, Relaxed);
        self.bits.store(bits, Relaxed);
    }

    /// As much of it as its end needs.
    pub(super) fn load(&self) -> Part {
        let bits = self.bits.load(Relaxed);
        let len = self.want.load(Relaxed);
        let chunk = Chunk {
            base: 0,
            at: 0,
            len,
        };
        Part {
            pos: self.pos.load(Relaxed),
            want: len,
            place: if bits & SHADOW != 0 {
                Place::Shadow {
                    address: 0,
                    chunk,
                    on_disk: bits & LENT != 0,
                    scheduled: false,
                    fine: false,
                }
            } else {
                Place::Gpu {
                    offset: 0,
                    ask: len,
                    scheduled: false,
                }
            },
            direction: if bits & WRITE != 0 {
                Direction::Write
            } else {
                Direction::Read
            },
            looks_sparse: bits & SPARSE != 0,
        }
    }

    /// Keeps a result for later.
    pub(super) fn put_off(&self, result: &Result<usize>) {
        self.result.store(super::pack(result), Relaxed);
    }

    /// The result that was kept.
    pub(super) fn result(&self) -> Result<usize> {
        super::unpack(self.result.load(Relaxed))
    }
}
