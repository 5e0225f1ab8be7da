// SPDX-License-Identifier: GPL-2.0

//! Counters, one copy a CPU, and what is derived from them; contract section 19.8 to 19.10.

use kernel::{
    prelude::*,
    sync::{
        new_mutex,
        Mutex, //
    },
    time::{
        Instant,
        Monotonic, //
    },
};
use nvfs_kernel::{
    pci::Address,
    percpu::Counters, //
};

/// What is counted. Gauges also go down, which is adding the negative number modulo 2^64.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counter {
    /// READ ioctls.
    Reads,
    /// Reads that ended with 0 bytes or more.
    ReadsOk,
    /// Reads refused, or ended outside the file system's synchronous path.
    ReadsErr,
    /// Read chunks for which the file system returned an error.
    ReadsStateErr,
    /// Bytes read.
    ReadBytes,
    /// Microseconds of all reads.
    ReadMicros,
    /// As for reads.
    Writes,
    /// As for reads.
    WritesOk,
    /// As for reads.
    WritesErr,
    /// As for reads.
    WritesStateErr,
    /// Bytes written.
    WriteBytes,
    /// Microseconds of all writes.
    WriteMicros,
    /// Rounds in which a write found pages in the page cache.
    PageCache,
    /// Rounds in which writing them back failed.
    PageCacheFail,
    /// Writes that gave up for that reason.
    PageCacheGaveUp,
    /// mmap calls with offset 0.
    Mmaps,
    /// Those that made a shadow buffer.
    MmapsOk,
    /// Those that failed.
    MmapsErr,
    /// Shadow buffers unmapped.
    Munmaps,
    /// MAP ioctls.
    Maps,
    /// Good ones.
    MapsOk,
    /// Bad ones.
    MapsErr,
    /// Buffers unmapped while ready.
    MapsFreed,
    /// Free callbacks of the GPU driver.
    Callbacks,
    /// Requests with shadow pages and others.
    CpuGpuPages,
    /// Lists of storage drivers that were too short.
    SgExt,
    /// Failed DMA mappings of GPU memory for a peer.
    DmaMap,
    /// Segments given back that were not taken.
    DmaRef,
    /// Read chunks of files that look sparse.
    SparseReads,
    /// Full synchronous read chunks with holes.
    SparseIo,
    /// Holes told.
    SparseHoles,
    /// Blocks of them.
    SparsePages,
    /// Batches.
    Batches,
    /// Batches of which all entries were started.
    BatchesOk,
    /// Other ones.
    BatchesErr,
    /// Batches in `BatchMicros`.
    BatchesTimed,
    /// Microseconds that starting their entries took.
    BatchMicros,
    /// Gauge: batches whose entries are being started.
    BatchOps,
    /// Gauge: buffers that are mapped to GPU memory.
    ActiveMaps,
    /// Gauge: bytes of shadow buffers.
    ShadowBytes,
    /// Gauge: reads under way.
    ReadOps,
    /// Gauge: writes under way.
    WriteOps,
}

const COUNTERS: usize = Counter::WriteOps as usize + 1;

/// Those that a reset leaves alone.
const KEPT: [Counter; 5] = [
    Counter::BatchOps,
    Counter::ActiveMaps,
    Counter::ShadowBytes,
    Counter::ReadOps,
    Counter::WriteOps,
];

/// All statistics.
#[pin_data]
pub(crate) struct Stats {
    counters: Counters<COUNTERS>,
    #[pin]
    rates: Mutex<[Rate; 3]>,
    #[pin]
    gpus: Mutex<KVec<GpuUse>>,
}

/// Bandwidth and latency of reads, writes or batches over the last window of at least a second.
#[derive(Clone, Copy)]
struct Rate {
    since: Instant<Monotonic>,
    operations: u64,
    bytes: u64,
    micros: u64,
    shown: (u64, u64),
}

impl Rate {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            operations: 0,
            bytes: 0,
            micros: 0,
            shown: (0, 0),
        }
    }

    /// Begins a new window if the last one is a second old and something happened in it.
    fn update(&mut self, operations: u64, bytes: u64, micros: u64) -> (u64, u64) {
        let seconds = u64::try_from(self.since.elapsed().as_millis() / 1000).unwrap_or(0);
        let new = operations.wrapping_sub(self.operations);
        if seconds > 0 && new > 0 {
            let mib = bytes.wrapping_sub(self.bytes) >> 20;
            self.shown = (mib / seconds, micros.wrapping_sub(self.micros) / new);
            self.since = Instant::now();
            self.operations = operations;
            self.bytes = bytes;
            self.micros = micros;
        }
        self.shown
    }
}

/// Memory of one GPU that is mapped.
#[derive(Clone, Copy)]
pub(crate) struct GpuUse {
    /// The GPU's identity.
    pub(crate) uuid: [u8; 16],
    /// Where it is, if it was found.
    pub(crate) address: Option<Address>,
    /// Bytes registered by programs.
    pub(crate) registered: u64,
    /// Bytes of the library's own buffers.
    pub(crate) cache: u64,
    /// The most that was registered.
    pub(crate) max: u64,
}

impl Stats {
    /// All zero. Fails with `ENOMEM`.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            counters: Counters::new()?,
            rates <- new_mutex!([Rate::new(); 3]),
            gpus <- new_mutex!(KVec::new()),
        })
    }

    /// Counts one more. Callable in any context.
    pub(crate) fn count(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Adds. Callable in any context.
    pub(crate) fn add(&self, counter: Counter, value: u64) {
        self.counters.add(counter as usize, value);
    }

    /// Takes off a gauge. Callable in any context.
    pub(crate) fn take(&self, gauge: Counter, value: u64) {
        self.counters.add(gauge as usize, value.wrapping_neg());
    }

    /// The value now.
    pub(crate) fn get(&self, counter: Counter) -> u64 {
        self.counters.sum(counter as usize)
    }

    /// MiB/s and microseconds of reads (0), writes (1) or batches (2), averaged over a window of a
    /// second or more. May sleep.
    pub(crate) fn rates(&self) -> [(u64, u64); 3] {
        let mut rates = self.rates.lock();
        let [reads, writes, batches] = &mut *rates;
        [
            reads.update(
                self.get(Counter::ReadsOk),
                self.get(Counter::ReadBytes),
                self.get(Counter::ReadMicros),
            ),
            writes.update(
                self.get(Counter::WritesOk),
                self.get(Counter::WriteBytes),
                self.get(Counter::WriteMicros),
            ),
            batches.update(
                self.get(Counter::BatchesTimed),
                0,
                self.get(Counter::BatchMicros),
            ),
        ]
    }

    /// A buffer of `size` bytes of a GPU is mapped. May sleep.
    pub(crate) fn gpu_mapped(
        &self,
        uuid: [u8; 16],
        address: Option<Address>,
        size: u64,
        bounce: bool,
    ) -> Result {
        let mut gpus = self.gpus.lock();
        let known = gpus.iter().position(|gpu| gpu.uuid == uuid);
        if known.is_none() {
            gpus.push(
                GpuUse {
                    uuid,
                    address,
                    registered: 0,
                    cache: 0,
                    max: 0,
                },
                GFP_KERNEL,
            )?;
        }
        if let Some(gpu) = gpus.iter_mut().find(|gpu| gpu.uuid == uuid) {
            if bounce {
                gpu.cache = gpu.cache.saturating_add(size);
            } else {
                gpu.registered = gpu.registered.saturating_add(size);
                gpu.max = gpu.max.max(gpu.registered);
            }
        }
        Ok(())
    }

    /// Such a buffer is gone. May sleep.
    pub(crate) fn gpu_unmapped(&self, uuid: [u8; 16], size: u64, bounce: bool) {
        let mut gpus = self.gpus.lock();
        if let Some(gpu) = gpus.iter_mut().find(|gpu| gpu.uuid == uuid) {
            let bytes = if bounce {
                &mut gpu.cache
            } else {
                &mut gpu.registered
            };
            *bytes = bytes.saturating_sub(size);
        }
    }

    /// Calls `f` for each GPU that ever had a buffer. May sleep.
    pub(crate) fn each_gpu(&self, mut f: impl FnMut(&GpuUse)) {
        self.gpus.lock().iter().for_each(&mut f);
    }

    /// Back to zero, but for what is the state of things: contract section 19.10. May sleep.
    pub(crate) fn reset(&self) {
        for index in 0..COUNTERS {
            if !KEPT.iter().any(|&kept| kept as usize == index) {
                self.counters.clear(index);
            }
        }
        *self.rates.lock() = [Rate::new(); 3];
        for gpu in self.gpus.lock().iter_mut() {
            gpu.max = 0;
        }
    }
}
