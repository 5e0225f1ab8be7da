// SPDX-License-Identifier: GPL-2.0

//! READ and WRITE: the checks, then the transfer in one or more parts, then the result.
//!
//! A synchronous transfer goes in parts of at most [`PART`] bytes, so that munmap and the GPU's
//! free callback need not wait for all of a long one. An asynchronous one is a single call to the
//! file system; its end comes in any context, hard interrupt included.
//!
//! Contract sections 9 and 10.

mod check;

use crate::{
    abi::IoArgs,
    buffer::{
        Buffer,
        BufferRef,
        Busy, //
    },
    driver::Driver,
    geometry::{
        read_len,
        BLOCK, //
    },
    params,
    path,
    stats::Counter, //
};
use check::Request;
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        atomic::Relaxed,
        ArcBorrow, //
    }, //
};
use nvfs_kernel::{
    file::IoFile,
    kiocb::{
        self,
        Completed,
        Direction,
        Outcome,
        Slot,
        Submitted, //
    },
    platform,
    reaper::Reaped, //
};

/// The most bytes of one part of a synchronous transfer.
const PART: u64 = 16 << 20;

/// The most bytes that the kernel moves in one call (`MAX_RW_COUNT`), in whole blocks.
const MAX_CALL: u64 = (1 << 31) - BLOCK;

/// How often a write tries to empty the page cache, and the pause between, in milliseconds.
const FLUSH_TRIES: u32 = 5;
const FLUSH_PAUSE_MS: u32 = 1;

/// The counters of one direction.
#[derive(Clone, Copy)]
struct Tally {
    all: Counter,
    ok: Counter,
    err: Counter,
    state_err: Counter,
    bytes: Counter,
    micros: Counter,
    ops: Counter,
}

const READS: Tally = Tally {
    all: Counter::Reads,
    ok: Counter::ReadsOk,
    err: Counter::ReadsErr,
    state_err: Counter::ReadsStateErr,
    bytes: Counter::ReadBytes,
    micros: Counter::ReadMicros,
    ops: Counter::ReadOps,
};

const WRITES: Tally = Tally {
    all: Counter::Writes,
    ok: Counter::WritesOk,
    err: Counter::WritesErr,
    state_err: Counter::WritesStateErr,
    bytes: Counter::WriteBytes,
    micros: Counter::WriteMicros,
    ops: Counter::WriteOps,
};

/// How one request is counted, decided when it begins.
#[derive(Clone, Copy)]
struct Count {
    tally: Tally,
    /// `rw_stats_enabled` was on.
    detailed: bool,
    /// When the checks began, in nanoseconds of the monotonic clock.
    started: i64,
}

const WRITE_BIT: u32 = 1;
const DETAILED_BIT: u32 = 2;

impl Count {
    fn begin(driver: &Driver, direction: Direction) -> Self {
        let detailed = params::RW_STATS.get() != 0;
        let tally = match direction {
            Direction::Read => READS,
            Direction::Write => WRITES,
        };
        if detailed {
            driver.stats.count(tally.all);
            driver.stats.count(tally.ops);
        }
        let started = if detailed { now() } else { 0 };
        Self {
            tally,
            detailed,
            started,
        }
    }

    /// Leaves it in the buffer for the end of an asynchronous transfer.
    fn store(&self, buffer: &Buffer, direction: Direction) {
        let write = match direction {
            Direction::Read => 0,
            Direction::Write => WRITE_BIT,
        };
        let detailed = if self.detailed { DETAILED_BIT } else { 0 };
        buffer.pending.flags.store(write | detailed, Relaxed);
        buffer.pending.started.store(self.started, Relaxed);
    }

    fn load(buffer: &Buffer) -> Self {
        let flags = buffer.pending.flags.load(Relaxed);
        Self {
            tally: if flags & WRITE_BIT != 0 {
                WRITES
            } else {
                READS
            },
            detailed: flags & DETAILED_BIT != 0,
            started: buffer.pending.started.load(Relaxed),
        }
    }

    /// One part is done: by the file system, or not.
    fn part(&self, driver: &Driver, result: &Result<usize>) {
        match result {
            Ok(bytes) if self.detailed => driver.stats.add(self.tally.bytes, *bytes as u64),
            Ok(_) => (),
            Err(_) => driver.stats.count(self.tally.state_err),
        }
    }

    /// The request is over.
    fn end(&self, driver: &Driver, ok: bool) {
        if !self.detailed {
            return;
        }
        driver.stats.take(self.tally.ops, 1);
        if ok {
            driver.stats.count(self.tally.ok);
            let micros = now().saturating_sub(self.started) / 1000;
            driver
                .stats
                .add(self.tally.micros, u64::try_from(micros).unwrap_or(0));
        }
    }
}

/// Nanoseconds of the monotonic clock, of which only differences matter.
fn now() -> i64 {
    platform::monotonic_ns()
}

/// The ioctl READ or WRITE; returns what goes to `ioctl_return`. May sleep.
pub(crate) fn request(
    driver: ArcBorrow<'_, Driver>,
    args: IoArgs,
    direction: Direction,
) -> Result<i64> {
    let count = Count::begin(&driver, direction);
    let request = Request::check(&args, direction).inspect_err(|_| {
        driver.stats.count(count.tally.err);
        count.end(&driver, false);
    })?;
    if args.is_sync() {
        run(&driver, &request, count)
    } else {
        start(&driver, request, args.end_fence_value, count)
    }
}

/// A synchronous transfer.
fn run(driver: &Driver, request: &Request, count: Count) -> Result<i64> {
    let done = prepare(driver, request)
        .inspect_err(|_| driver.stats.count(count.tally.err))
        .and_then(|()| parts(driver, request, count));
    count.end(driver, done.is_ok());
    done
}

/// All parts, one after the other, until one falls short. Returns the bytes.
fn parts(driver: &Driver, request: &Request, count: Count) -> Result<i64> {
    let size = request.range.size();
    let mut done = 0;
    while done < size {
        if !request.busy.may_continue() {
            driver.stats.count(count.tally.err);
            return Err(EIO);
        }
        if done > 0 && platform::is_dying() {
            return Err(EINTR);
        }
        let want = (size - done).min(PART);
        let pos = request.range.offset() + done;
        let ask = ask(request, pos, want);
        if ask == 0 {
            break;
        }
        let binding = request.busy.buffer().binding()?;
        let memory = binding.memory().ok_or(EINVAL)?;
        binding.count_dma(driver);
        let segment = memory
            .segment(request.gpu_offset + done, ask)
            .ok_or(EINVAL)?;
        let outcome = kiocb::transfer(
            &request.file,
            request.direction,
            i64::try_from(pos).map_err(|_| EINVAL)?,
            &segment,
        );
        note_fallback(driver, &outcome);
        count.part(driver, &outcome.result);
        let bytes = outcome.result? as u64;
        done += bytes;
        if bytes < want {
            break;
        }
    }
    i64::try_from(done).map_err(|_| EINVAL)
}

/// How many bytes of a part to ask the file system for.
fn ask(request: &Request, pos: u64, want: u64) -> u64 {
    match request.direction {
        Direction::Read => {
            let file = &request.file;
            read_len(pos, want, file.size(), file.block_size())
        }
        Direction::Write => want,
    }
}

/// Says that a file system did not move the data directly, although it had said it would.
fn note_fallback(driver: &Driver, outcome: &Outcome) {
    if outcome.buffered && outcome.result.is_ok() && driver.path_log.allows() {
        pr_warn!("the file system moved data through its page cache, by the CPU, not directly\n");
    }
}

/// An asynchronous transfer. After this, the meta block is written exactly once, here or at the
/// end, whatever happens.
fn start(driver: &Driver, request: Request, fence: u64, count: Count) -> Result<i64> {
    let direction = request.direction;
    if let Err(e) = prepare(driver, &request) {
        driver.stats.count(count.tally.err);
        return finish(request.busy, count, fence, Err(e));
    }
    let size = request.range.size().min(MAX_CALL);
    let pos = request.range.offset();
    let ask = ask(&request, pos, size);
    if !request.busy.may_continue() {
        driver.stats.count(count.tally.err);
        return finish(request.busy, count, fence, Err(EIO));
    }
    if ask == 0 {
        return finish(request.busy, count, fence, Ok(0));
    }
    let Request {
        busy,
        file,
        gpu_offset,
        ..
    } = request;
    busy.buffer().pending.fence.store(fence, Relaxed);
    if let Ok(binding) = busy.buffer().binding() {
        binding.count_dma(driver);
    }
    count.store(busy.buffer(), direction);
    let buffer = busy.into_async();
    let submitted = kiocb::submit(
        buffer.clone(),
        file,
        direction,
        i64::try_from(pos).unwrap_or(i64::MAX),
        |buffer| buffer.binding().ok()?.memory()?.segment(gpu_offset, ask),
    );
    match submitted {
        Ok(Submitted::Queued) => Ok(0),
        Ok(Submitted::Done(outcome)) => {
            note_fallback(driver, &outcome);
            count.part(driver, &outcome.result);
            finish(Busy::from_async(buffer), count, fence, outcome.result)
        }
        Err(e) => finish(Busy::from_async(buffer), count, fence, Err(e)),
    }
}

/// The end of an asynchronous transfer: the buffer takes the next one, then the process is told.
/// Callable in any context. Returns the result as it was told.
fn finish(busy: Busy, count: Count, fence: u64, result: Result<usize>) -> Result<i64> {
    let buffer = busy.buffer().clone();
    drop(busy);
    let told = result.map(|bytes| bytes as i64);
    count.end(&buffer.driver, told.is_ok());
    if let Ok(binding) = buffer.binding() {
        let value = match told {
            Ok(bytes) => bytes,
            Err(e) => i64::from(e.to_errno()),
        };
        binding.meta.finish(value, fence);
    }
    told
}

impl Completed for Buffer {
    fn completed(this: ARef<Reaped<Self>>, outcome: Outcome) {
        // The next transfer may begin once the buffer is not busy: nothing of this one is read
        // from it after that.
        let count = Count::load(&this);
        let fence = this.pending.fence.load(Relaxed);
        count.part(&this.driver, &outcome.result);
        if outcome.result.is_err() {
            this.driver.stats.count(count.tally.err);
        }
        // What was told to the process is all there is to do with the result.
        let _ = finish(Busy::from_async(this), count, fence, outcome.result);
    }

    fn slot(&self) -> &Slot {
        self.transfer()
    }
}

/// What is done once, before the first part: finding the way, then, for writes, contract section
/// 9.8. Nothing has moved when it fails. May sleep.
fn prepare(driver: &Driver, request: &Request) -> Result {
    find_path(driver, request)?;
    match request.direction {
        Direction::Read => Ok(()),
        Direction::Write => prepare_write(driver, request),
    }
}

/// Whether there is a way between this file and this GPU at all. May sleep.
fn find_path(driver: &Driver, request: &Request) -> Result {
    let buffer: &BufferRef = request.busy.buffer();
    let binding = buffer.binding()?;
    if binding.memory().is_some() && binding.approved.covers(&request.file) {
        return Ok(());
    }
    let approve = || {
        let gpu = path::Gpu::of(binding.first_byte().map_err(|_| path::Refusal::NoGpu)?)?;
        path::check(&gpu, &request.file)?;
        binding.prepare_memory(&gpu)
    };
    match approve() {
        Ok(()) => {
            binding.approved.set(&request.file);
            Ok(())
        }
        Err(refusal) => {
            if driver.path_log.allows() {
                pr_warn!("{}\n", refusal);
            }
            Err(refusal.errno())
        }
    }
}

/// File systems that need no help to write directly: NFS, Lustre, BeeGFS and ScaTeFS.
const NETWORK_FILE_SYSTEMS: [u64; 4] = [0x6969, 0x0bd0_0bd0, 0x1983_0326, 0x5354_4653];

fn prepare_write(driver: &Driver, request: &Request) -> Result {
    let file: &IoFile = &request.file;
    if file.is_block_device() {
        return Ok(());
    }
    if !file.has_fallocate() && !NETWORK_FILE_SYSTEMS.contains(&file.file_system_magic()) {
        return Err(EIO);
    }
    let first = i64::try_from(request.range.offset()).map_err(|_| EINVAL)?;
    let last = i64::try_from(request.range.offset() + request.range.size()).map_err(|_| EINVAL)?;
    for _ in 0..FLUSH_TRIES {
        if !file.is_cached(first, last) {
            return Ok(());
        }
        driver.stats.count(Counter::PageCache);
        if file.flush_cache(first, last).is_err() {
            driver.stats.count(Counter::PageCacheFail);
            platform::sleep_ms(FLUSH_PAUSE_MS);
        }
    }
    if !file.is_cached(first, last) {
        return Ok(());
    }
    driver.stats.count(Counter::PageCacheGaveUp);
    Err(EIO)
}
