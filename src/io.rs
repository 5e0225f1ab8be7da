// SPDX-License-Identifier: GPL-2.0

//! READ and WRITE: the checks, then the transfer in one or more parts, then the result.
//!
//! A request is an [`Io`] once it has passed its checks. Then it either is started and ends by
//! itself (asynchronous), or is run to its end (synchronous).
//!
//! A synchronous transfer goes in parts of at most [`PART`] bytes, so that munmap and the GPU's
//! free callback need not wait for all of a long one. An asynchronous one is a single call to the
//! file system; its end comes in any context, hard interrupt included.
//!
//! Contract sections 9 and 10.

mod candidate;
mod check;
pub(crate) mod chunk;
mod wait;

pub(crate) use candidate::Candidate;
pub(crate) use wait::Waiter;

use crate::{
    abi::IoArgs,
    buffer::{
        Binding,
        Buffer,
        BufferRef,
        Busy, //
    },
    counters::Total,
    driver::Driver,
    geometry::BLOCK,
    params,
    path::{
        self,
        Route,
        Way, //
    },
    stats::Counter, //
};
use check::Request;
use chunk::Part;
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        atomic::Relaxed,
        ArcBorrow, //
    }, //
};
use nvfs_kernel::{
    fault::{
        self,
        Point, //
    },
    file::{
        CacheKeptOut,
        IoFile, //
    },
    kiocb::{
        self,
        Completed,
        Direction,
        Outcome,
        Slot,
        Submitted, //
    },
    platform,
    reaper::{
        Deferred,
        Reaped, //
    },
    trace::{
        self,
        Transfer, //
    },
};
use wait::Found;

/// The most bytes of one part of a synchronous transfer.
const PART: u64 = 16 << 20;

/// The most bytes that the kernel moves in one call (`MAX_RW_COUNT`), in whole blocks.
const MAX_CALL: u64 = (1 << 31) - BLOCK;

/// How often a write tries to empty the page cache, and the pause between, in milliseconds.
const FLUSH_TRIES: u32 = 5;
const FLUSH_PAUSE_MS: u32 = 1;

/// The counters of one direction.
struct Tally {
    all: Counter,
    ok: Counter,
    err: Counter,
    state_err: Counter,
    bytes: Counter,
    micros: Counter,
    ops: Counter,
}

static READS: Tally = Tally {
    all: Counter::Reads,
    ok: Counter::ReadsOk,
    err: Counter::ReadsErr,
    state_err: Counter::ReadsStateErr,
    bytes: Counter::ReadBytes,
    micros: Counter::ReadMicros,
    ops: Counter::ReadOps,
};

static WRITES: Tally = Tally {
    all: Counter::Writes,
    ok: Counter::WritesOk,
    err: Counter::WritesErr,
    state_err: Counter::WritesStateErr,
    bytes: Counter::WriteBytes,
    micros: Counter::WriteMicros,
    ops: Counter::WriteOps,
};

/// The beginning of an ioctl.
#[derive(Clone, Copy)]
pub(crate) struct Begin {
    /// `rw_stats_enabled` was on.
    pub(crate) detailed: bool,
    /// In nanoseconds of the monotonic clock; 0 if nobody asks.
    at: i64,
}

impl Begin {
    /// It begins now.
    pub(crate) fn now() -> Self {
        let detailed = params::RW_STATS.get() != 0;
        let timed = detailed || trace::times_requests();
        let at = if timed { now() } else { 0 };
        Self { detailed, at }
    }

    /// Microseconds since then; 0 if nobody asked.
    pub(crate) fn micros(&self) -> u64 {
        if self.at == 0 {
            return 0;
        }
        u64::try_from(now().saturating_sub(self.at) / 1000).unwrap_or(0)
    }
}

/// How one request is counted, decided when it begins.
#[derive(Clone, Copy)]
struct Count {
    direction: Direction,
    /// The file's device, `major << 20 | minor`, and what the request is for, to be traced.
    device: u32,
    offset: i64,
    size: u64,
    tally: &'static Tally,
    /// How it goes, once that is known.
    way: Option<Way>,
    begin: Begin,
}

const WRITE_BIT: u32 = 1;
const DETAILED_BIT: u32 = 2;
const CALLBACK_BIT: u32 = 4;

impl Count {
    fn begin(driver: &Driver, direction: Direction, args: &IoArgs, begin: Begin) -> Self {
        let count = Self {
            // The request fails if they are not the file's.
            device: args.majdev << 20 | args.mindev,
            offset: args.offset,
            size: args.size,
            ..Self::new(direction, None, begin)
        };
        if begin.detailed {
            driver.stats.count(count.tally.all);
            driver.stats.count(count.tally.ops);
        }
        count
    }

    fn new(direction: Direction, way: Option<Way>, begin: Begin) -> Self {
        let tally = match direction {
            Direction::Read => &READS,
            Direction::Write => &WRITES,
        };
        Self {
            direction,
            device: 0,
            offset: 0,
            size: 0,
            tally,
            way,
            begin,
        }
    }

    /// Leaves it in the buffer for the end of an asynchronous transfer.
    fn store(&self, buffer: &Buffer) {
        let bits = [
            (WRITE_BIT, self.direction == Direction::Write),
            (DETAILED_BIT, self.begin.detailed),
            (CALLBACK_BIT, self.way == Some(Way::Callback)),
        ];
        let flags = bits
            .iter()
            .filter(|bit| bit.1)
            .fold(0, |all, bit| all | bit.0);
        buffer.pending.flags.store(flags, Relaxed);
        buffer.pending.device.store(self.device, Relaxed);
        buffer.pending.offset.store(self.offset, Relaxed);
        buffer.pending.size.store(self.size, Relaxed);
        buffer.pending.started.store(self.begin.at, Relaxed);
    }

    fn load(buffer: &Buffer) -> Self {
        let flags = buffer.pending.flags.load(Relaxed);
        let direction = if flags & WRITE_BIT != 0 {
            Direction::Write
        } else {
            Direction::Read
        };
        let way = if flags & CALLBACK_BIT != 0 {
            Way::Callback
        } else {
            Way::P2pdma
        };
        let begin = Begin {
            detailed: flags & DETAILED_BIT != 0,
            at: buffer.pending.started.load(Relaxed),
        };
        Self {
            device: buffer.pending.device.load(Relaxed),
            offset: buffer.pending.offset.load(Relaxed),
            size: buffer.pending.size.load(Relaxed),
            ..Self::new(direction, Some(way), begin)
        }
    }

    /// What is traced of it.
    fn transfer(&self, buffer: &Buffer, way: Way) -> Transfer {
        Transfer {
            gpu: buffer.gpu_number(),
            device: self.device,
            direction: self.direction,
            callback: way == Way::Callback,
            offset: self.offset,
            bytes: self.size,
        }
    }

    /// A way was found.
    fn submitted(&mut self, request: &Request, way: Way, sync: bool) {
        self.way = Some(way);
        trace::submit(|| (self.transfer(request.busy.buffer(), way), sync));
    }

    /// The request is over; its buffer has not yet taken the next one. Callable in any context.
    fn over(&self, buffer: &Buffer, result: i64) {
        if let Some(way) = self.way {
            let bytes = u64::try_from(result).ok();
            buffer.driver.totals.io(way, self.direction, bytes);
            trace::complete(|| (self.transfer(buffer, way), result, self.begin.micros()));
        }
        self.end(&buffer.driver, result >= 0);
    }

    /// It did not pass its checks.
    fn reject(&self, driver: &Driver) {
        driver.totals.count(match self.direction {
            Direction::Read => Total::ReadsRejected,
            Direction::Write => Total::WritesRejected,
        });
    }

    /// One part is done: by the file system, or not.
    fn part(&self, driver: &Driver, result: &Result<usize>) {
        match result {
            Ok(bytes) if self.begin.detailed => driver.stats.add(self.tally.bytes, *bytes as u64),
            Ok(_) => (),
            Err(_) => driver.stats.count(self.tally.state_err),
        }
    }

    /// A request that was counted at its begin is over. Callable in any context.
    fn end(&self, driver: &Driver, ok: bool) {
        if !self.begin.detailed {
            return;
        }
        driver.stats.take(self.tally.ops, 1);
        if ok {
            driver.stats.count(self.tally.ok);
            driver.stats.add(self.tally.micros, self.begin.micros());
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
    let count = Count::begin(&driver, direction, &args, Begin::now());
    let request = Request::check(&args, direction).inspect_err(|_| {
        driver.stats.count(count.tally.err);
        count.reject(&driver);
        count.end(&driver, false);
    })?;
    let io = Io::new(request, &args, count);
    if io.is_sync() {
        io.run(&driver, Wait::Whole)
    } else {
        io.start(&driver)
    }
}

/// A request that has passed its checks, and is not started.
pub(crate) struct Io {
    request: Request,
    /// For the meta block, if it is asynchronous.
    fence: Option<u64>,
    count: Count,
}

/// How to wait for the parts of a synchronous transfer.
#[derive(Clone, Copy)]
pub(crate) enum Wait {
    /// Each to its end.
    Whole,
    /// Until a fatal signal; the part under way then ends by itself.
    Killable,
}

impl Io {
    #[inline(always)]
    fn new(request: Request, args: &IoArgs, count: Count) -> Self {
        let fence = (!args.is_sync()).then_some(args.end_fence_value);
        Self {
            request,
            fence,
            count,
        }
    }

    /// Whether it is to be run, not to be started.
    pub(crate) fn is_sync(&self) -> bool {
        self.fence.is_none()
    }

    /// Starts an asynchronous transfer; returns 0, or the bytes when it was over at once. After
    /// this, the meta block is written exactly once, here or at the end, whatever happens. May
    /// sleep.
    pub(crate) fn start(self, driver: &Driver) -> Result<i64> {
        let fence = self.fence.ok_or(EINVAL)?;
        start(driver, self.request, fence, self.count)
    }

    /// Does a synchronous transfer; returns the bytes. Sleeps. `EINTR` when a fatal signal ended
    /// it.
    pub(crate) fn run(mut self, driver: &Driver, wait: Wait) -> Result<i64> {
        let Self { request, count, .. } = &mut self;
        let prepared = prepare(driver, request, count, true)
            .inspect_err(|_| driver.stats.count(count.tally.err));
        let done = prepared.and_then(|ready| parts(driver, request, ready.route, count, wait));
        // If not, its completion does it.
        if self.request.busy.ends_here() {
            self.count.over(self.request.busy.buffer(), told(&done));
        }
        done
    }

    /// Ends it with an error, without having started it. Callable in any context.
    pub(crate) fn refuse(self, driver: &Driver, e: Error) {
        driver.stats.count(self.count.tally.err);
        match self.fence {
            Some(fence) => {
                let _ = finish(self.request.busy, self.count, fence, Err(e));
            }
            None => self.count.end(driver, false),
        }
    }
}

/// How often a part may be tried again because a peer was not known to the GPU driver.
const PEER_TRIES: u32 = 8;

/// All parts, one after the other, until one falls short. Returns the bytes.
fn parts(
    driver: &Driver,
    request: &mut Request,
    route: Route,
    count: &Count,
    wait: Wait,
) -> Result<i64> {
    let size = request.range.size();
    let mut done = 0;
    let mut tries = PEER_TRIES;
    while done < size {
        if !request.busy.may_continue() {
            driver.stats.count(count.tally.err);
            return Err(EIO);
        }
        if done > 0 && platform::is_dying() {
            driver.stats.count(count.tally.err);
            return Err(EINTR);
        }
        let part = Part::next(request, route, done, PART)
            .inspect_err(|_| driver.stats.count(count.tally.err))?;
        if part.is_empty() {
            break;
        }
        let outcome = match wait {
            Wait::Whole => transfer(driver, request, count, &part)?,
            Wait::Killable => transfer_killable(driver, request, count, &part)?,
        };
        let buffer = request.busy.buffer();
        note_fallback(driver, buffer, &outcome);
        let (settled, holes) = part.settle(buffer, outcome.result);
        if settled.is_err() && tries > 0 && map_wanted(driver, buffer) {
            tries -= 1;
            continue;
        }
        count.part(driver, &outcome.result);
        let moved = outcome.result?;
        let bytes = settled.inspect_err(|_| driver.stats.count(count.tally.err))? as u64;
        done += bytes;
        if holes && moved as u64 == part.want {
            driver.stats.count(Counter::SparseIo);
        }
        if holes || bytes < part.want {
            break;
        }
    }
    i64::try_from(done).map_err(|_| EINVAL)
}

/// Makes the GPU memory known to a peer that a storage driver came with, and that was not foreseen.
/// Whether there was one, and it worked. May sleep.
fn map_wanted(driver: &Driver, buffer: &Buffer) -> bool {
    match buffer.binding().and_then(Binding::map_wanted) {
        Ok(mapped) => mapped,
        Err(_) => {
            mapping_failed(driver);
            false
        }
    }
}

/// GPU memory could not be made known to a peer. Callable in any context.
fn mapping_failed(driver: &Driver) {
    driver.stats.count(Counter::DmaMap);
    driver.totals.count(Total::MappingsFailed);
}

/// One part, to its end.
fn transfer(driver: &Driver, request: &Request, count: &Count, part: &Part) -> Result<Outcome> {
    let segment = part
        .open(request.busy.buffer())
        .inspect_err(|_| driver.stats.count(count.tally.err))?;
    Ok(kiocb::transfer(
        &request.file,
        request.direction,
        part.pos,
        &segment,
    ))
}

/// One part, to its end or until a fatal signal. Then it fails with `EINTR`, and the transfer has
/// all that it needs: the kiocb in the buffer holds buffer and file, and its completion ends it.
#[inline(never)] // What it needs on the stack is not for others to make ready.
fn transfer_killable(
    driver: &Driver,
    request: &mut Request,
    count: &Count,
    part: &Part,
) -> Result<Outcome> {
    let buffer = request.busy.buffer().clone();
    count.store(&buffer);
    buffer.waiter.begin();
    let submitted = kiocb::submit(
        buffer.clone(),
        request.file.clone(),
        request.direction,
        part.pos,
        |buffer| part.open(buffer),
    );
    if !matches!(submitted, Ok(Submitted::Queued)) {
        buffer.waiter.cancel();
    }
    let submitted = submitted.inspect_err(|_| driver.stats.count(count.tally.err))?;
    match submitted {
        Submitted::Done(outcome) => Ok(outcome),
        Submitted::Queued => match buffer.waiter.wait() {
            Some(result) => Ok(Outcome {
                result,
                buffered: false,
            }),
            None => {
                request.busy.leave();
                Err(EINTR)
            }
        },
    }
}

/// Says that a file system does not seem to have moved the data directly, although it had said it
/// would. The next request asks it again.
fn note_fallback(driver: &Driver, buffer: &Buffer, outcome: &Outcome) {
    if !outcome.buffered {
        return;
    }
    buffer.approved.forget();
    if driver.path_log.allows() {
        pr_warn!("data seems to have gone through the page cache of a file or block device, by the CPU, not directly\n");
    }
}

/// See [`Io::start`].
fn start(driver: &Driver, request: Request, fence: u64, mut count: Count) -> Result<i64> {
    let direction = request.direction;
    let ready = prepare(driver, &request, &mut count, false).and_then(|ready| {
        if !request.busy.may_continue() {
            return Err(EIO);
        }
        let part = Part::next(&request, ready.route, 0, MAX_CALL)?;
        Ok((ready, part))
    });
    let (_ready, part) = match ready {
        Ok(ready) => ready,
        Err(e) => {
            driver.stats.count(count.tally.err);
            return finish(request.busy, count, fence, Err(e));
        }
    };
    if part.is_empty() {
        return finish(request.busy, count, fence, Ok(0));
    }
    let Request { busy, file, .. } = request;
    busy.buffer().pending.fence.store(fence, Relaxed);
    busy.buffer().pending.part.store(&part);
    count.store(busy.buffer());
    let buffer = busy.into_async();
    let submitted = kiocb::submit(buffer.clone(), file, direction, part.pos, |buffer| {
        part.open(buffer)
    });
    match submitted {
        Ok(Submitted::Queued) => Ok(0),
        Ok(Submitted::Done(outcome)) => {
            note_fallback(driver, &buffer, &outcome);
            count.part(driver, &outcome.result);
            let full = outcome
                .result
                .as_ref()
                .is_ok_and(|n| *n as u64 == part.want);
            let (result, holes) = part.settle(&buffer, outcome.result);
            if holes && full {
                driver.stats.count(Counter::SparseIo);
            }
            if result.is_err() {
                driver.stats.count(count.tally.err);
                map_wanted(driver, &buffer);
            }
            finish(Busy::from_async(buffer), count, fence, result)
        }
        Err(e) => {
            driver.stats.count(count.tally.err);
            finish(Busy::from_async(buffer), count, fence, Err(e))
        }
    }
}

/// The end of an asynchronous transfer: the buffer takes the next one, then the process is told.
/// Callable in any context. Returns the result as it was told.
fn finish(busy: Busy, count: Count, fence: u64, result: Result<usize>) -> Result<i64> {
    let buffer = busy.buffer().clone();
    let result = result.map(|bytes| bytes as i64);
    count.over(&buffer, told(&result));
    drop(busy);
    if let Ok(binding) = buffer.binding() {
        binding.meta.finish(told(&result), fence);
    }
    result
}

/// A result as the process is told: bytes, or a negative errno.
fn told(result: &Result<i64>) -> i64 {
    match result {
        Ok(bytes) => *bytes,
        Err(e) => i64::from(e.to_errno()),
    }
}

/// A result as one number, for an atomic: bytes, or a negative errno.
fn pack(result: &Result<usize>) -> i64 {
    told(&result.map(|bytes| bytes as i64))
}

/// Undoes [`pack`].
fn unpack(told: i64) -> Result<usize> {
    usize::try_from(told).map_err(|_| i32::try_from(told).map_or(EIO, Error::from_errno))
}

impl Completed for Buffer {
    fn completed(this: ARef<Reaped<Self>>, outcome: Outcome) {
        let found = this.waiter.tell(&outcome.result);
        if matches!(found, Found::Waiter) {
            return;
        }
        let gone = matches!(found, Found::Gone);
        if gone {
            let count = Count::load(&this);
            count.part(&this.driver, &outcome.result);
            this.driver.stats.count(count.tally.err);
            count.over(&this, i64::from(EINTR.to_errno()));
            return drop(Busy::from_async(this));
        }
        let part = this.pending.part.load();
        if !this.wants_peer() {
            if let Some(settled) = part.settle_at_once(&this, outcome.result) {
                return end(this, &outcome.result, settled);
            }
        }
        if platform::may_sleep() {
            return look_and_end(this, &part, outcome.result);
        }
        this.pending.part.put_off(&outcome.result);
        if let Err(this) = Reaped::later(this) {
            // It has only one transfer, so only one end can be waiting.
            end(this, &outcome.result, Err(EIO));
        }
    }

    fn slot(&self) -> &Slot {
        self.transfer()
    }
}

impl Deferred for Buffer {
    fn deferred(this: ARef<Reaped<Self>>) {
        let (part, result) = (this.pending.part.load(), this.pending.part.result());
        look_and_end(this, &part, result);
    }
}

/// The end of an asynchronous transfer whose shadow memory is to be looked at, or which came upon a
/// peer that was not foreseen. May sleep.
fn look_and_end(this: ARef<Reaped<Buffer>>, part: &Part, result: Result<usize>) {
    map_wanted(&this.driver, &this);
    let (settled, _) = part.settle(&this, result);
    end(this, &result, settled);
}

/// The end of an asynchronous transfer: the file system's result, and what it means. Callable in any
/// context.
fn end(this: ARef<Reaped<Buffer>>, result: &Result<usize>, settled: Result<usize>) {
    // The next transfer may begin once the buffer is not busy: nothing of this one is read from it
    // after that.
    let count = Count::load(&this);
    let fence = this.pending.fence.load(Relaxed);
    count.part(&this.driver, result);
    if settled.is_err() {
        this.driver.stats.count(count.tally.err);
    }
    // What was told to the process is all there is to do with the result.
    let _ = finish(Busy::from_async(this), count, fence, settled);
}

/// What is done once, before the first part: finding the way, then, for writes, contract section
/// 9.8. Nothing has moved when it fails. May sleep.
#[inline]
fn prepare(driver: &Driver, request: &Request, count: &mut Count, sync: bool) -> Result<Prepared> {
    let route = find_path(driver, request, count)?;
    count.submitted(request, route.way, sync);
    let kept_out = match request.direction {
        Direction::Read => None,
        Direction::Write => prepare_write(driver, request)?,
    };
    Ok(Prepared {
        route,
        _kept_out: kept_out,
    })
}

/// What a request's parts need; to be kept until all are started.
struct Prepared {
    route: Route,
    _kept_out: Option<CacheKeptOut>,
}

/// Finds the way between this file and this GPU, and prepares the buffer for it. May sleep.
fn find_path(driver: &Driver, request: &Request, count: &Count) -> Result<Route> {
    let buffer: &BufferRef = request.busy.buffer();
    let vendors = &driver.vendors;
    // The P2PDMA pages were found then; they go no sooner than the right to make a request.
    if let Some(route) = buffer.approved.covers(vendors, &request.file) {
        return Ok(route);
    }
    let approve = || {
        let basis = path::Basis::of(vendors, &request.file)?;
        look_for_path(driver, request).map(|route| (basis, route))
    };
    match approve() {
        Ok((basis, route)) => {
            buffer.approved.set(&request.file, basis, route);
            Ok(route)
        }
        Err(refusal) => {
            let (total, errno) = (refusal.total(), refusal.errno());
            driver.totals.count(total);
            trace::refuse(|| {
                let reason = total.name().trim_start_matches("refused_");
                let gpu = buffer.gpu_number();
                (gpu, count.device, count.direction, reason, errno.to_errno())
            });
            if driver.path_log.allows() {
                pr_warn!("{}\n", refusal);
            }
            Err(errno)
        }
    }
}

/// The same, when nothing is known of the file. May sleep.
fn look_for_path(driver: &Driver, request: &Request) -> Result<Route, path::Refusal> {
    let buffer: &BufferRef = request.busy.buffer();
    let binding = buffer.binding().map_err(|_| path::Refusal::NoGpu)?;
    if let Some(peers) = path::callback(&driver.vendors, &request.file)? {
        for peer in &peers.functions {
            binding.map_for(peer).map_err(|e| {
                mapping_failed(driver);
                path::Refusal::Mapping {
                    drive: peer.address(),
                    error: e.to_errno(),
                }
            })?;
        }
        return Ok(Route::new(Way::Callback, &request.file, peers.scheduled));
    }
    let gpu = path::Gpu::of(binding.first_byte().map_err(|_| path::Refusal::NoGpu)?)?;
    let route = path::check(&gpu, &request.file)?;
    buffer.prepare_memory(&gpu)?;
    Ok(route)
}

/// File systems that need no help to write directly: NFS, Lustre, BeeGFS and ScaTeFS.
const NETWORK_FILE_SYSTEMS: [u64; 4] = [0x6969, 0x0bd0_0bd0, 0x1983_0326, 0x5354_4653];

fn prepare_write(driver: &Driver, request: &Request) -> Result<Option<CacheKeptOut>> {
    let file: &IoFile = &request.file;
    let first = i64::try_from(request.range.offset()).map_err(|_| EINVAL)?;
    let last = i64::try_from(request.range.offset() + request.range.size()).map_err(|_| EINVAL)?;
    if file.is_block_device() {
        return Ok(file.keep_cache_out(first, last - 1));
    } else if !file.has_fallocate() && !NETWORK_FILE_SYSTEMS.contains(&file.file_system_magic()) {
        return Err(EIO);
    }
    for _ in 0..FLUSH_TRIES {
        if !file.is_cached(first, last) {
            return Ok(None);
        }
        driver.stats.count(Counter::PageCache);
        if fault::fires(Point::FlushCache) || file.flush_cache(first, last).is_err() {
            driver.stats.count(Counter::PageCacheFail);
            platform::sleep_ms(FLUSH_PAUSE_MS);
        }
    }
    if !file.is_cached(first, last) {
        return Ok(None);
    }
    driver.stats.count(Counter::PageCacheGaveUp);
    Err(EIO)
}
