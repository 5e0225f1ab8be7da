// SPDX-License-Identifier: GPL-2.0

//! Direct reads and writes of a file from kernel context, into memory that the kernel can address
//! or that the process has mapped.
//!
//! Peer-to-peer memory is given as [`bio_vec`](bindings::bio_vec)s, with an I/O priority that keeps
//! the block layer from merging its bios with others, or as [`kvec`](bindings::kvec)s, which do so
//! by themselves and cost more (see `docs/design.md`).
//!
//! C header: `include/linux/fs.h`; the checks are those of `vfs_iocb_iter_read` in
//! `fs/read_write.c`, but that a file opened only for writing may be read.

use crate::{
    bindings,
    fault::{
        self,
        Point, //
    },
    file::{
        pages_dirtied,
        IoFile, //
    },
    p2pdma::Memory,
    reaper::Reaped,
    shadow::Lent, //
};
use core::{
    cell::UnsafeCell,
    mem::MaybeUninit,
    ptr::NonNull, //
};
use kernel::{
    container_of,
    error::to_result,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc, //
    },
    types::Opaque,
};

/// Where the data goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the file to memory.
    Read,
    /// From memory to the file.
    Write,
}

/// Memory for one transfer, which it keeps.
pub struct Segment {
    place: Place,
    len: usize,
}

/// # Invariants
///
/// From the piece with index `first` on, without the first `skip` bytes of it, the memory has as many
/// bytes as the segment; that piece has more than `skip`.
enum Place {
    Peer {
        memory: Arc<Memory>,
        first: usize,
        skip: usize,
        scheduled: bool,
    },
    User(usize),
    Shadow {
        memory: Lent,
        scheduled: bool,
    },
}

impl Segment {
    /// `len` bytes of peer-to-peer memory, beginning `skip` bytes into the piece with index `first`,
    /// for a disk that has an I/O scheduler or not.
    ///
    /// # Safety
    ///
    /// As the invariants of `Place` say.
    pub(crate) unsafe fn new(
        memory: Arc<Memory>,
        first: usize,
        skip: usize,
        len: usize,
        scheduled: bool,
    ) -> Self {
        // INVARIANT: By the safety requirements.
        Self {
            place: Place::Peer {
                memory,
                first,
                skip,
                scheduled,
            },
            len,
        }
    }

    /// Shadow memory, for a disk that has an I/O scheduler or not.
    #[inline]
    pub fn shadow(memory: Lent, scheduled: bool) -> Self {
        Self {
            len: memory.len(),
            place: Place::Shadow { memory, scheduled },
        }
    }

    /// `len` bytes at a user address, of whatever process the transfer is started in.
    #[inline]
    pub fn user(address: usize, len: usize) -> Self {
        Self {
            place: Place::User(address),
            len,
        }
    }
}

/// The kernel's result of a read or write, as a count of bytes or an error.
fn result(ret: isize) -> Result<usize> {
    usize::try_from(ret).map_err(|_| match c_int::try_from(-ret) {
        // ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK: the transfer cannot
        // be begun again, as `fs/aio.c` says of its own.
        Ok(512 | 513 | 514 | 516) => EINTR,
        Ok(errno) => Error::from_errno(-errno),
        Err(_) => EIO,
    })
}

/// Starts a transfer with an initialized `iocb`.
///
/// # Safety
///
/// `iocb` is set up for `file`, its `ki_complete` is set as wanted; if that is not `None`, `iocb`
/// and the memory of `segment` stay valid until it is called.
unsafe fn start(
    iocb: *mut bindings::kiocb,
    file: &IoFile,
    direction: Direction,
    segment: &Segment,
) -> isize {
    let write = direction == Direction::Write;
    let operation = if write {
        file.write_iter()
    } else {
        file.read_iter()
    };
    let Some(operation) = operation else {
        return EINVAL.to_errno() as isize;
    };
    // SAFETY: The file is open; the position belongs to our iocb.
    let verified = unsafe {
        bindings::rw_verify_area(
            c_int::from(write),
            file.as_ptr(),
            &raw const (*iocb).ki_pos,
            segment.len,
        )
    };
    if let Err(e) = to_result(verified) {
        return e.to_errno() as isize;
    }

    let mut iter = MaybeUninit::<bindings::iov_iter>::uninit();
    match &segment.place {
        Place::Peer {
            memory,
            first,
            skip,
            scheduled,
        } => {
            let part = (*first, *skip, segment.len);
            // SAFETY: By the invariants of `Place`.
            let priority = unsafe { memory.iterate(write, part, *scheduled, &mut iter) };
            if let Some(priority) = priority {
                // SAFETY: The iocb is ours until the operation is called.
                unsafe { (*iocb).ki_ioprio = priority };
            }
        }
        Place::Shadow { memory, scheduled } => {
            memory.iterate(write, &mut iter);
            // Hooks do not take requests that have other memory, too.
            // SAFETY: The iocb is ours until the operation is called.
            unsafe { bindings::nvfs_helper_kiocb_set_apart(iocb, !*scheduled) };
        }
        Place::User(address) => {
            // SAFETY: Any address will do.
            let error = unsafe {
                bindings::import_ubuf(
                    c_int::from(write),
                    core::ptr::without_provenance_mut(*address),
                    segment.len,
                    iter.as_mut_ptr(),
                )
            };
            if let Err(e) = to_result(error) {
                return e.to_errno() as isize;
            }
            // Hooks do not take requests that have other memory, too.
            // SAFETY: The iocb is ours until the operation is called.
            unsafe { bindings::nvfs_helper_kiocb_set_apart(iocb, false) };
        }
    }

    let freezable = write && file.is_regular();
    if write {
        // SAFETY: The iocb is ours until the operation is called.
        unsafe { (*iocb).ki_flags |= bindings::IOCB_WRITE as c_int };
    }
    if freezable {
        // SAFETY: The iocb is set up; the other half is below, or in `complete`.
        unsafe { bindings::nvfs_helper_kiocb_start_write(iocb) };
    }
    // SAFETY: The iocb and the iterator are set up; by the safety requirements what they refer to
    // stays valid.
    let ret = unsafe { operation(iocb, iter.as_mut_ptr()) };
    if ret != -(bindings::EIOCBQUEUED as isize) {
        if freezable {
            // SAFETY: Started above; it will not complete by itself.
            unsafe { bindings::nvfs_helper_kiocb_end_write(iocb) };
        }
        if ret > 0 {
            // SAFETY: The file is open.
            unsafe { bindings::nvfs_helper_fsnotify(file.as_ptr(), write) };
        }
    }
    ret
}

/// What became of a transfer that is over.
pub struct Outcome {
    /// Bytes, or the file system's error.
    pub result: Result<usize>,
    /// The file system does not seem to have done it directly, but through its page cache.
    pub buffered: bool,
}

impl Outcome {
    fn new(ret: isize, flags: c_int, was_cached: impl FnOnce() -> bool) -> Self {
        let result = match fault::fires(Point::FileIo) {
            true => Err(EIO),
            false => result(ret),
        };
        let fell_back = flags & bindings::IOCB_DIRECT as c_int == 0;
        Self {
            buffered: result.is_ok() && (fell_back || was_cached()),
            result,
        }
    }
}

/// Reads or writes and waits for the end. `pos` is the file offset in bytes.
///
/// Sleeps. Errors: those of the file system, unchanged; `EINVAL` when the file cannot be read or
/// written at all; `EINTR` when a signal ended it.
pub fn transfer(file: &IoFile, direction: Direction, pos: i64, segment: &Segment) -> Outcome {
    let dirtied = pages_dirtied();
    let mut iocb = MaybeUninit::<bindings::kiocb>::uninit();
    let iocb = iocb.as_mut_ptr();
    // SAFETY: Memory for an iocb; the file is open and outlives it.
    unsafe { bindings::nvfs_helper_init_sync_kiocb(iocb, file.as_ptr()) };
    // SAFETY: Set up just now. `O_DIRECT` may be gone from the file by now, but never its ability.
    unsafe {
        (*iocb).ki_pos = pos;
        (*iocb).ki_flags |= bindings::IOCB_DIRECT as c_int;
    }
    // SAFETY: `ki_complete` is `None`, so it is over when `start` returns.
    let ret = unsafe { start(iocb, file, direction, segment) };
    // SAFETY: It is over, so the iocb is ours again.
    let flags = unsafe { (*iocb).ki_flags };
    Outcome::new(ret, flags, || {
        write_was_cached(file, direction, pos, segment.len, dirtied)
    })
}

/// Whether a write that was over at once may have gone through the page cache.
fn write_was_cached(
    file: &IoFile,
    direction: Direction,
    pos: i64,
    len: usize,
    dirtied: c_uint,
) -> bool {
    let last = pos
        .saturating_add(i64::try_from(len).unwrap_or(i64::MAX))
        .saturating_sub(1);
    direction == Direction::Write && file.was_cached(dirtied, pos, last)
}

/// What an object does when its asynchronous transfer is over.
pub trait Completed: Send + Sync + Sized + 'static {
    /// The transfer is over; the object may start the next one. Runs in any context, hard
    /// interrupt included: must not sleep. Dropping `this` is fine, see [`Reaped`].
    fn completed(this: ARef<Reaped<Self>>, outcome: Outcome);

    /// The slot of the object, always the same.
    fn slot(&self) -> &Slot;
}

/// Room in an object for its one asynchronous transfer at a time.
///
/// A transfer is over when its data was moved *and* the file system's function has returned, which may
/// look at the iocb after it has queued it, as ext4's does to note the time of access. Who comes
/// second ends it.
///
/// # Invariants
///
/// - While `busy` is 0, `iocb`, `file`, `segment` and `owner` are nobody's; who changes it to 1 owns them
///   until the transfer is over.
/// - While a transfer is under way `owner` is a counted reference on the object around this slot.
/// - `stage` leaves `BEGUN` once in a transfer: by [`submit`] to `QUEUED`, or by `complete` to
///   `MOVED`. Who finds it changed by the other owns the rest of the transfer.
#[pin_data]
pub struct Slot {
    busy: Atomic<u32>,
    stage: Atomic<u32>,
    /// What `complete` was told.
    result: Atomic<i64>,
    #[pin]
    iocb: Opaque<bindings::kiocb>,
    file: UnsafeCell<Option<IoFile>>,
    segment: UnsafeCell<Option<Segment>>,
    owner: UnsafeCell<Option<NonNull<c_void>>>,
    freezable: UnsafeCell<bool>,
}

/// The file system's function has not returned.
const BEGUN: u32 = 0;
/// It has returned, and the data is under way.
const QUEUED: u32 = 1;
/// The data was moved before it has returned.
const MOVED: u32 = 2;

// SAFETY: By the type invariants the fields have one owner at a time.
unsafe impl Send for Slot {}
// SAFETY: As above.
unsafe impl Sync for Slot {}

/// What [`submit`] did.
pub enum Submitted {
    /// [`Completed::completed`] was or will be called.
    Queued,
    /// It is over already, and `completed` is not called.
    Done(Outcome),
}

impl Slot {
    /// An idle slot.
    pub fn new() -> impl PinInit<Self> {
        // INVARIANT: Not busy.
        pin_init!(Self {
            busy: Atomic::new(0),
            stage: Atomic::new(BEGUN),
            result: Atomic::new(0),
            iocb <- Opaque::uninit(),
            file: UnsafeCell::new(None),
            segment: UnsafeCell::new(None),
            owner: UnsafeCell::new(None),
            freezable: UnsafeCell::new(false),
        })
    }

    /// Ends the ownership that the change of `busy` began, and gives the file back.
    ///
    /// # Safety
    ///
    /// The caller owns the slot, and no transfer is under way.
    unsafe fn release(&self) -> Option<IoFile> {
        // SAFETY: By the safety requirements and the type invariants.
        let (file, segment) = unsafe { ((*self.file.get()).take(), (*self.segment.get()).take()) };
        // Before the end is told: so this is not the last reference on the memory.
        drop(segment);
        // INVARIANT: Nobody's again.
        self.busy.store(0, Release);
        file
    }
}

/// Starts an asynchronous read or write of `file` at byte `pos`, into the memory that `segment`
/// picks in the object. The object stays alive until it is over, and so does the file.
///
/// May sleep. Errors, all before anything is started: `EBUSY` when the object has a transfer under
/// way; those of `segment`.
pub fn submit<T: Completed>(
    this: ARef<Reaped<T>>,
    file: IoFile,
    direction: Direction,
    pos: i64,
    segment: impl FnOnce(&Reaped<T>) -> Result<Segment>,
) -> Result<Submitted> {
    let dirtied = pages_dirtied();
    let raw = ARef::into_raw(this);
    // SAFETY: We own a reference until `complete` takes it or it is taken back below.
    let object: &Reaped<T> = unsafe { raw.as_ref() };
    let slot = object.slot();
    // SAFETY: We own the reference.
    let take_back = || unsafe { ARef::from_raw(raw) };

    if slot.busy.cmpxchg(0, 1, Acquire).is_err() {
        drop(take_back());
        return Err(EBUSY);
    }
    // From here on the slot is ours.
    // INVARIANT: A new transfer.
    slot.stage.store(BEGUN, Relaxed);
    let iocb = slot.iocb.get();
    // SAFETY: Memory for an iocb; the file is kept in the slot until it is over.
    unsafe { bindings::nvfs_helper_init_sync_kiocb(iocb, file.as_ptr()) };
    // SAFETY: The slot is ours.
    unsafe {
        (*iocb).ki_pos = pos;
        (*iocb).ki_flags |= bindings::IOCB_DIRECT as c_int;
        (*iocb).ki_complete = Some(complete::<T>);
        *slot.owner.get() = Some(raw.cast());
        *slot.freezable.get() = direction == Direction::Write && file.is_regular();
        *slot.file.get() = Some(file.clone());
    }
    let segment = match segment(object) {
        Ok(segment) => segment,
        Err(e) => {
            // SAFETY: The slot is ours, and nothing was started.
            drop(unsafe { slot.release() });
            drop(take_back());
            return Err(e);
        }
    };
    let len = segment.len;
    // SAFETY: The slot is ours.
    let segment = unsafe { (*slot.segment.get()).insert(segment) };
    // SAFETY: The iocb and the segment are in the object, which the reference keeps; the segment
    // keeps its memory.
    let ret = unsafe { start(iocb, &file, direction, segment) };
    if ret == -(bindings::EIOCBQUEUED as isize) {
        // The reference is now the transfer's, and is there as long as this has not changed.
        if slot.stage.xchg(QUEUED, Full) == MOVED {
            // SAFETY: `complete` was here, and has left the rest to us.
            unsafe { end::<T>(iocb) };
        }
        return Ok(Submitted::Queued);
    }
    // SAFETY: It will not complete by itself, so the iocb is ours.
    let flags = unsafe { (*iocb).ki_flags };
    // SAFETY: As above.
    drop(unsafe { slot.release() });
    drop(take_back());
    Ok(Submitted::Done(Outcome::new(ret, flags, || {
        write_was_cached(&file, direction, pos, len, dirtied)
    })))
}

/// # Safety
///
/// Only for who completes an iocb that [`submit`] with the same type has queued, once.
unsafe extern "C" fn complete<T: Completed>(iocb: *mut bindings::kiocb, ret: c_long) {
    // SAFETY: The iocb is the field of a slot, whose object the transfer's reference keeps.
    let slot = unsafe { &*container_of!(Opaque::cast_from(iocb), Slot, iocb) };
    slot.result.store(ret as i64, Relaxed);
    if slot.stage.xchg(MOVED, Full) == QUEUED {
        // SAFETY: The file system's function has returned before.
        unsafe { end::<T>(iocb) };
    }
}

/// The end of a transfer that was queued. Callable in any context.
///
/// # Safety
///
/// The iocb is that of a transfer which [`submit`] with the same type has queued, of which both parts
/// are over; once.
unsafe fn end<T: Completed>(iocb: *mut bindings::kiocb) {
    // SAFETY: As in `complete`.
    let slot = unsafe { &*container_of!(Opaque::cast_from(iocb), Slot, iocb) };
    let ret = slot.result.load(Relaxed) as isize;
    // SAFETY: The transfer is over, so what it owned is ours: the slot ..
    let owner = unsafe { (*slot.owner.get()).take() };
    // SAFETY: .. and whether write access was taken.
    if unsafe { *slot.freezable.get() } {
        // SAFETY: `start` has begun it.
        unsafe { bindings::nvfs_helper_kiocb_end_write(iocb) };
    }
    // SAFETY: As above.
    let flags = unsafe { (*iocb).ki_flags };
    // SAFETY: As above.
    let file = unsafe { slot.release() };
    // One that was queued was direct, or has cleared its flag.
    let outcome = Outcome::new(ret, flags, || false);
    if let Some(owner) = owner {
        // SAFETY: By the invariants of `Slot` it is a counted reference on a `Reaped<T>`.
        let this = unsafe { ARef::<Reaped<T>>::from_raw(owner.cast()) };
        T::completed(this, outcome);
    }
    drop(file);
}
