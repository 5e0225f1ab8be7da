// SPDX-License-Identifier: GPL-2.0

//! A buffer: the shadow memory that a process maps, and the GPU memory that MAP binds to it.
//!
//! A buffer lives as long as anybody refers to it: the mapping, a request under way, a transfer
//! under way. Who may do what with it is said by its [`Life`], which the GPU driver's free callback
//! shares. The last reference may go in an interrupt; the buffer is freed where sleeping is legal.
//!
//! Contract sections 6, 7 and 11.

mod life;
mod map;
mod state;
mod target;

pub(crate) use map::map;

use crate::{
    abi::BLOCK,
    driver::Driver,
    geometry::{
        joins,
        run,
        GpuRange, //
    },
    io::{
        chunk::Kept,
        Waiter, //
    },
    meta::Meta,
    params,
    path,
    peers::Gpu,
    rdma,
    stats::Counter,
    window::Window, //
};
use kernel::{
    mm::virt::{
        flags,
        VmaNew, //
    },
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        ArcBorrow,
        SetOnce,
        UniqueArc, //
    },
};
use life::Life;
use nvfs_kernel::{
    dma_ops::{
        self,
        Run, //
    },
    extents::Extent,
    fault::{
        self,
        Point, //
    },
    gpu::PinnedGpu,
    kiocb::Slot,
    p2pdma,
    pci::Function,
    published::Offered,
    reaper::Reaped,
    shadow::{
        self,
        Fault, //
    },
    vma::{
        self,
        Faulting, //
    }, //
};
use state::{
    Refused,
    Word, //
};

/// The longest shadow buffer, in bytes.
const MAX_SHADOW: usize = 16 << 20;

/// Lengths above this are multiples of it.
const SHADOW_UNIT: usize = 64 << 10;

static MAPPINGS: vma::Table<Mapping> = vma::Table::new();

/// The driver, for storage drivers that ask about no buffer.
pub(crate) static DRIVER: Offered<Driver> = Offered::new();

/// What tells shadow pages from all others.
pub(crate) static SHADOWS: shadow::Space<Buffer> = shadow::Space::new();

/// A counted reference on a buffer, which may be dropped in any context.
pub(crate) type BufferRef = ARef<Reaped<Buffer>>;

/// A buffer. The fields are in the order in which they must drop.
#[pin_data]
pub(crate) struct Buffer {
    #[pin]
    transfer: Slot,
    binding: SetOnce<Binding>,
    #[pin]
    shadow: shadow::Pages,
    life: Arc<Life>,
    /// The last file for which a way was found.
    #[pin]
    pub(crate) approved: path::Approved,
    /// What the end of an asynchronous transfer needs.
    pub(crate) pending: Pending,
    /// Who waits for its end, if anybody.
    #[pin]
    pub(crate) waiter: Waiter,
    /// What SET_RDMA_REG_INFO said.
    #[pin]
    pub(crate) rdma: rdma::Record,
    /// Requests that the block layer made of this buffer's data and others'.
    #[pin]
    shares: dma_ops::Shares<Buffer>,
    pub(crate) driver: Arc<Driver>,
}

/// The asynchronous transfer under way. Written by who has the buffer busy.
pub(crate) struct Pending {
    /// The part that is under way.
    pub(crate) part: Kept,
    /// Value for the meta block.
    pub(crate) fence: Atomic<u64>,
    /// When it began, in nanoseconds of the monotonic clock.
    pub(crate) started: Atomic<i64>,
    /// How it is counted.
    pub(crate) flags: Atomic<u32>,
    /// What is traced of it: the file's device, and the range.
    pub(crate) device: Atomic<u32>,
    pub(crate) offset: Atomic<i64>,
    pub(crate) size: Atomic<u64>,
}

/// GPU memory that is bound to a buffer. The fields are in the order in which they must drop.
pub(crate) struct Binding {
    extents: KVVec<Extent>,
    /// The address of each GPU page.
    pages: KVVec<u64>,
    pin: PinnedGpu<map::Revocation>,
    /// What the shadow memory stands for.
    pub(crate) window: Window,
    /// Bytes of shadow memory.
    pub(crate) shadow_len: u64,
    pub(crate) range: GpuRange,
    pub(crate) meta: Arc<Meta>,
    /// Whose memory it is, if that was found out.
    gpu: Option<Gpu>,
    _account: map::Account,
}

/// Makes the VMA that is being made a shadow buffer: contract section 6.1. May sleep.
pub(crate) fn mmap(driver: ArcBorrow<'_, Driver>, vma: &VmaNew, offset: usize) -> Result {
    if offset != 0 {
        return Err(EIO);
    }
    driver.stats.count(Counter::Mmaps);
    let made = make_mapping(driver, vma);
    driver.stats.count(match made {
        Ok(()) => Counter::MmapsOk,
        Err(_) => Counter::MmapsErr,
    });
    made
}

fn make_mapping(driver: ArcBorrow<'_, Driver>, vma: &VmaNew) -> Result {
    let len = vma.end() - vma.start();
    let unit = if len < SHADOW_UNIT {
        BLOCK as usize
    } else {
        SHADOW_UNIT
    };
    if len > MAX_SHADOW || len % unit != 0 {
        return Err(EINVAL);
    }
    let wanted = flags::READ | flags::WRITE | flags::MAYREAD | flags::MAYWRITE | flags::SHARED;
    if vma.flags() & (wanted | flags::EXEC) != wanted {
        return Err(EINVAL);
    }
    if fault::fires(Point::InsertPage) {
        return Err(ENOMEM);
    }
    let life = Life::new()?;
    let buffer = Reaped::new(
        &driver.reaper,
        pin_init!(Buffer {
            transfer <- Slot::new(),
            binding: SetOnce::new(),
            shadow <- shadow::Pages::new(len / PAGE_SIZE),
            life,
            approved <- path::Approved::new(),
            pending: Pending {
                part: Kept::new(),
                fence: Atomic::new(0),
                started: Atomic::new(0),
                flags: Atomic::new(0),
                device: Atomic::new(0),
                offset: Atomic::new(0),
                size: Atomic::new(0),
            },
            waiter <- Waiter::new(),
            rdma <- rdma::Record::new(),
            shares <- dma_ops::Shares::new(),
            driver: driver.into(),
        }),
    )?;
    let place = UniqueArc::new_uninit(GFP_KERNEL)?;
    // From here on, `Mapping::drop` takes it back.
    driver.stats.add(Counter::ShadowBytes, len as u64);
    MAPPINGS.install(vma, place.write(Mapping { buffer, len }).into());
    Ok(())
}

/// The process's mapping of a buffer.
struct Mapping {
    buffer: BufferRef,
    len: usize,
}

impl vma::Mapped for Mapping {
    fn fault(&self, vma: Faulting<'_>, index: usize) -> Result<Fault> {
        self.buffer.shadow.fault(&SHADOWS, &self.buffer, vma, index)
    }
}

impl Drop for Mapping {
    /// The process has unmapped it, or is gone. Waits for no transfer.
    fn drop(&mut self) {
        let stats = &self.buffer.driver.stats;
        let before = self.buffer.life.word();
        self.buffer.life.set(Word::close);
        stats.count(Counter::Munmaps);
        stats.take(Counter::ShadowBytes, self.len as u64);
        if before.begin_io().is_ok() {
            stats.count(Counter::MapsFreed);
        }
    }
}

/// Finds the buffer whose mapping starts at a user address, in the current process.
///
/// Fails with `EINVAL`, whatever is wrong: contract section 6.6.
fn find(cpuvaddr: u64) -> Result<(BufferRef, u64)> {
    let address = usize::try_from(cpuvaddr).map_err(|_| EINVAL)?;
    if address == 0 || cpuvaddr % BLOCK != 0 {
        return Err(EINVAL);
    }
    // Only the buffer is kept: the mapping must be able to go while a transfer is under way.
    MAPPINGS
        .find(address, |found| {
            found
                .writable
                .then(|| (found.data.buffer.clone(), found.len as u64))
        })
        .flatten()
        .ok_or(EINVAL)
}

/// The buffer at `cpuvaddr`, whatever its state. Fails with `EINVAL`. May sleep.
pub(crate) fn at(cpuvaddr: u64) -> Result<BufferRef> {
    find(cpuvaddr).map(|(buffer, _)| buffer)
}

/// The buffer at `cpuvaddr`, whatever its state, if MAP was done. Fails with `EINVAL`. May sleep.
pub(crate) fn mapped(cpuvaddr: u64) -> Result<BufferRef> {
    let buffer = at(cpuvaddr)?;
    buffer.binding()?;
    Ok(buffer)
}

/// A buffer with a transfer under way: nobody else may begin one. Dropping it ends that.
pub(crate) struct Busy {
    buffer: BufferRef,
    /// The end is ours to tell.
    ends: bool,
}

impl Busy {
    /// Takes a buffer.
    ///
    /// Errors: `EINVAL` when it is not mapped to GPU memory; `EBUSY` when it has a transfer under
    /// way, or its GPU memory is gone.
    pub(crate) fn take(buffer: BufferRef) -> Result<Self> {
        if fault::fires(Point::State) {
            return Err(EBUSY);
        }
        buffer
            .life
            .change(Word::begin_io)
            .map_err(|refused| match refused {
                Refused::Phase => EINVAL,
                Refused::Busy => EBUSY,
            })?;
        Ok(Self { buffer, ends: true })
    }

    /// Takes over the end of the transfer from [`into_async`](Self::into_async).
    pub(crate) fn from_async(buffer: BufferRef) -> Self {
        Self { buffer, ends: true }
    }

    /// Leaves the end of the transfer to its completion, which is to call
    /// [`from_async`](Self::from_async).
    pub(crate) fn into_async(mut self) -> BufferRef {
        self.leave();
        self.buffer.clone()
    }

    /// Leaves the end of the transfer to its completion, as [`into_async`](Self::into_async).
    pub(crate) fn leave(&mut self) {
        self.ends = false;
    }

    /// Whether the end was not left to a completion.
    pub(crate) fn ends_here(&self) -> bool {
        self.ends
    }

    /// The buffer.
    pub(crate) fn buffer(&self) -> &BufferRef {
        &self.buffer
    }

    /// Whether the transfer may go on: the buffer is still mapped, and the GPU memory stays.
    pub(crate) fn may_continue(&self) -> bool {
        self.buffer.may_continue()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if self.ends {
            self.buffer.life.end_io();
        }
    }
}

impl Buffer {
    /// The GPU memory. `EINVAL` before MAP.
    pub(crate) fn binding(&self) -> Result<&Binding> {
        self.binding.as_ref().ok_or(EINVAL)
    }

    /// Whether it is still mapped, and the GPU memory stays.
    pub(crate) fn may_continue(&self) -> bool {
        self.life.word().may_continue()
    }

    /// A storage driver came with a peer that the memory is not known to.
    pub(crate) fn wants_peer(&self) -> bool {
        self.binding
            .as_ref()
            .is_some_and(|binding| binding.pin.wants_peer())
    }

    /// Counts one part of a transfer as a DMA run between the GPU and the drive of the approved
    /// file. May sleep.
    pub(crate) fn count_dma(&self) {
        if params::PEER_STATS.get() == 0 {
            return;
        }
        let gpu = self.binding.as_ref().and_then(|binding| binding.gpu);
        if let (Some(gpu), Some(drive)) = (gpu, self.approved.drive()) {
            self.driver.peers.count(gpu.index, drive, 1);
        }
    }

    /// The P2PDMA pages of the GPU memory, if they were found. May sleep.
    pub(crate) fn memory(&self) -> Option<Arc<p2pdma::Memory>> {
        self.life.memory.lock().clone()
    }

    /// Finds or makes the P2PDMA pages of the GPU memory, unless that was done. To be called by who
    /// has the buffer busy. May sleep.
    pub(crate) fn prepare_memory(&self, gpu: &path::Gpu) -> Result<(), path::Refusal> {
        if self.memory().is_some() {
            return Ok(());
        }
        let binding = self.binding().map_err(|_| path::Refusal::NoGpu)?;
        let memory = Arc::new(gpu.memory(&binding.extents)?, GFP_KERNEL)?;
        *self.life.memory.lock() = Some(memory);
        Ok(())
    }

    /// The GPU's address as a number, 0 while that is not known. Callable in any context.
    pub(crate) fn gpu_number(&self) -> u64 {
        self.life.gpu.load(Relaxed)
    }

    /// The shadow memory.
    pub(crate) fn shadow(&self) -> &shadow::Pages {
        &self.shadow
    }

    /// Room for the asynchronous transfer.
    pub(crate) fn transfer(&self) -> &Slot {
        &self.transfer
    }
}

impl Binding {
    /// Physical address of the first byte, which tells the GPU.
    pub(crate) fn first_byte(&self) -> Result<u64> {
        self.extents.first().map(|extent| extent.phys).ok_or(EINVAL)
    }

    /// Makes the memory known to the peers that storage drivers came with, and that it was not known
    /// to. Whether there was one. May sleep. Errors: see [`PinnedGpu::map_wanted`].
    pub(crate) fn map_wanted(&self) -> Result<bool> {
        if self.pin.wants_peer() && fault::fires(Point::Dma) {
            return Err(EIO);
        }
        self.pin.map_wanted()
    }

    /// Makes the memory known to a peer. May sleep. Errors: see [`PinnedGpu::map_for`].
    pub(crate) fn map_for(&self, peer: &Function) -> Result {
        if fault::fires(Point::Dma) {
            return Err(EIO);
        }
        self.pin.map_for(peer)
    }

    /// The contiguous piece, of at most `len` bytes, that begins `at` bytes into the shadow memory,
    /// by the address of each GPU page. `None` for what is not in the chunk under way.
    fn run(&self, at: usize, len: usize, pages: &[u64]) -> Option<Run> {
        let start = self.window.locate(at, len)?;
        let (address, len) = run(pages, start, len)?;
        Some(Run {
            address,
            len,
            joins: joins(start),
        })
    }
}
