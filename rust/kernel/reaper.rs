// SPDX-License-Identifier: GPL-2.0

//! Counted objects whose last reference may be dropped in any context, although freeing them
//! sleeps, and a reaper that waits for all of them before the module goes.
//!
//! C header: `include/linux/workqueue.h`.

use crate::{
    alloc::GFP_CHARGED,
    bindings,
    completion::Event, //
};
use core::{
    mem::MaybeUninit,
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    container_of,
    prelude::*,
    sync::{
        aref::{
            ARef,
            AlwaysRefCounted, //
        },
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        Refcount, //
    },
    types::Opaque,
};

/// Frees [`Reaped`] objects. Dropping it waits, without a limit, until none of its objects lives
/// and none of their code runs any more.
pub struct Reaper {
    inner: Arc<Inner>,
}

/// # Invariants
///
/// - `queue` is a work queue, destroyed only by the `Drop` of the [`Reaper`].
/// - `live` counts the objects and the [`Reaper`].
#[pin_data]
struct Inner {
    queue: NonNull<bindings::workqueue_struct>,
    live: Refcount,
    #[pin]
    idle: Event,
}

// SAFETY: A work queue has its own locks.
unsafe impl Send for Inner {}
// SAFETY: As above.
unsafe impl Sync for Inner {}

impl Inner {
    /// One object less.
    fn put(&self) {
        if self.live.dec_and_test() {
            self.idle.complete_all();
        }
    }
}

impl Reaper {
    /// A reaper with a work queue called `name`. May sleep. Fails with `ENOMEM`.
    pub fn new(name: &'static CStr) -> Result<Self> {
        // SAFETY: `name` is a C string.
        let queue = unsafe { bindings::nvfs_helper_alloc_workqueue(name.as_char_ptr()) };
        let queue = NonNull::new(queue).ok_or(ENOMEM)?;
        // INVARIANT: Just made; the count is ours.
        let inner = Arc::pin_init(
            pin_init!(Inner {
                queue,
                live: Refcount::new(1),
                idle <- Event::new(),
            }),
            GFP_KERNEL,
        )
        .inspect_err(|_| {
            // SAFETY: Just made, and nothing is queued.
            unsafe { bindings::destroy_workqueue(queue.as_ptr()) }
        })?;
        Ok(Self { inner })
    }
}

/// The right to make objects that a [`Reaper`] waits for.
#[derive(Clone)]
pub struct Handle(Arc<Inner>);

impl Reaper {
    /// For those who make objects. After the reaper there are none.
    pub fn handle(&self) -> Handle {
        Handle(self.inner.clone())
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.inner.put();
        self.inner.idle.wait();
        // SAFETY: By the type invariants; no object lives, so nothing is queued after this. It
        // waits for the work that runs.
        unsafe { bindings::destroy_workqueue(self.inner.queue.as_ptr()) };
        // SAFETY: May sleep here.
        unsafe { bindings::nvfs_helper_synchronize_callers() };
        // SAFETY: As above; `release` may still run.
        unsafe { bindings::rcu_barrier() };
    }
}

/// A counted object. When its last reference goes, it is freed at once if a process does that where
/// sleeping is legal, else a little later by the [`Reaper`]: in a thread of the kernel that completes I/O,
/// too, as freeing may wait for something that this thread is to complete.
///
/// # Invariants
///
/// It is in a `KBox`. When the last reference goes, `data` is dropped; the memory is freed a grace
/// period of RCU later, with `refs` still 0.
#[pin_data]
pub struct Reaped<T> {
    refs: Refcount,
    reaper: Arc<Inner>,
    /// 1 while [`later`](Self::later) has something to do.
    pending: Atomic<u32>,
    /// For the last reference, or for who changed `pending` to 1.
    work: Opaque<bindings::work_struct>,
    rcu: Opaque<bindings::callback_head>,
    #[pin]
    data: T,
}

// SAFETY: The other fields are touched by atomics, or by the last owner alone.
unsafe impl<T: Send + Sync> Send for Reaped<T> {}
// SAFETY: As above.
unsafe impl<T: Send + Sync> Sync for Reaped<T> {}

impl<T: Send + Sync + 'static> Reaped<T> {
    /// Makes an object, with one reference. May sleep. Fails with `ENOMEM`, or as `data` does; with
    /// `ENODEV` when the reaper is gone.
    pub fn new<E>(reaper: &Handle, data: impl PinInit<T, E>) -> Result<ARef<Self>>
    where
        Error: From<E>,
    {
        let boxed = KBox::try_pin_init(
            try_pin_init!(Self {
                refs: Refcount::new(1),
                reaper: reaper.0.clone(),
                pending: Atomic::new(0),
                work: Opaque::uninit(),
                rcu: Opaque::uninit(),
                data <- data,
            }? Error),
            GFP_CHARGED,
        )?;
        if !inc_not_zero(&reaper.0.live) {
            return Err(ENODEV);
        }
        // SAFETY: The object is not moved: it is only freed, through a pinned box again.
        let object = unsafe { Pin::into_inner_unchecked(boxed) };
        // INVARIANT: In its box, with one reference, which becomes the `ARef`'s.
        let object = NonNull::from(Box::leak(object));
        // SAFETY: The count is 1, and it is ours.
        Ok(unsafe { ARef::from_raw(object) })
    }

    /// Frees the object, after its last reference.
    ///
    /// # Safety
    ///
    /// The count is zero, and this is called once. May sleep.
    unsafe fn free(this: NonNull<Self>) {
        let object = this.as_ptr();
        // SAFETY: By the safety requirements we own the object; `data` is not used again.
        unsafe { core::ptr::drop_in_place(&raw mut (*object).data) };
        // SAFETY: RCU readers only look at `refs`; the rest is ours.
        unsafe {
            bindings::call_rcu(
                Opaque::cast_into(&raw const (*object).rcu),
                Some(release::<T>),
            )
        }
    }

    /// A new reference, unless the last one is gone. Callable in any context.
    ///
    /// # Safety
    ///
    /// `this` was an object when the current RCU read-side critical section began.
    pub(crate) unsafe fn try_get(this: NonNull<Self>) -> Option<ARef<Self>> {
        // SAFETY: By the type invariants the count is readable.
        let taken = inc_not_zero(unsafe { &(*this.as_ptr()).refs });
        // SAFETY: The reference was just taken.
        taken.then(|| unsafe { ARef::from_raw(this) })
    }

    /// Has [`Deferred::deferred`] called with the reference. Callable in any context. Gives the
    /// reference back when an earlier call has not begun.
    pub fn later(this: ARef<Self>) -> Result<(), ARef<Self>>
    where
        T: Deferred,
    {
        if this.pending.cmpxchg(0, 1, Acquire).is_err() {
            return Err(this);
        }
        let raw = ARef::into_raw(this);
        // SAFETY: The reference is `run`'s, which is not queued yet.
        unsafe { raw.as_ref() }.queue(run::<T>);
        Ok(())
    }

    /// Queues the work item, which is the caller's.
    fn queue(&self, func: unsafe extern "C" fn(*mut bindings::work_struct)) {
        let work = self.work.get();
        // SAFETY: Memory for a work item, not in use.
        unsafe { bindings::nvfs_helper_init_work(work, Some(func)) };
        // SAFETY: The queue lives, as this object is counted in it.
        unsafe {
            bindings::queue_work_on(
                bindings::wq_misc_consts_WORK_CPU_UNBOUND as c_int,
                self.reaper.queue.as_ptr(),
                work,
            )
        };
    }
}

/// One more, unless there is none, or no room for it.
fn inc_not_zero(count: &Refcount) -> bool {
    let count = count.as_atomic();
    let mut old = count.load(Relaxed);
    while old > 0 && old != i32::MAX {
        match count.cmpxchg(old, old + 1, Acquire) {
            Ok(_) => return true,
            Err(now) => old = now,
        }
    }
    false
}

/// What an object puts off until sleeping is legal.
pub trait Deferred: Send + Sync + Sized + 'static {
    /// May sleep.
    fn deferred(this: ARef<Reaped<Self>>);
}

impl<T> Deref for Reaped<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.data
    }
}

// SAFETY: The object lives while the count is not zero; who brings it to zero frees it.
unsafe impl<T: Send + Sync + 'static> AlwaysRefCounted for Reaped<T> {
    fn inc_ref(&self) {
        self.refs.inc();
    }

    unsafe fn dec_ref(this: NonNull<Self>) {
        // SAFETY: By the caller's contract there is a reference.
        let object = unsafe { this.as_ref() };
        if !object.refs.dec_and_test() {
            return;
        }
        // SAFETY: Only looks at the context.
        if unsafe { bindings::nvfs_helper_may_sleep() } {
            // SAFETY: It was the last reference, and we may sleep.
            return unsafe { Self::free(this) };
        }
        object.queue(reap::<T>);
    }
}

/// # Safety
///
/// Only for RCU, on the head of a `Reaped<T>` whose `data` was dropped, once.
unsafe extern "C" fn release<T: Send + Sync + 'static>(head: *mut bindings::callback_head) {
    // SAFETY: By the safety requirements.
    let object = unsafe { container_of!(Opaque::cast_from(head), Reaped<T>, rcu) }.cast_mut();
    // SAFETY: Nobody else has the object any more; the field is not used again.
    let reaper = unsafe { core::ptr::read(&raw const (*object).reaper) };
    // SAFETY: It was a `KBox` by the type invariants, and all that must be dropped was.
    drop(unsafe { KBox::<MaybeUninit<Reaped<T>>>::from_raw(object.cast()) });
    reaper.put();
}

/// # Safety
///
/// Only for the work queue, as [`Reaped::later`] has queued it.
unsafe extern "C" fn run<T: Deferred>(work: *mut bindings::work_struct) {
    // SAFETY: By the safety requirements.
    let object = unsafe { container_of!(Opaque::cast_from(work), Reaped<T>, work) };
    let Some(object) = NonNull::new(object.cast_mut()) else {
        return;
    };
    // SAFETY: `later` has left its reference to us.
    let this = unsafe { ARef::from_raw(object) };
    this.pending.store(0, Release);
    T::deferred(this);
}

/// # Safety
///
/// Only for the work queue, on the work item of a `Reaped<T>` without references, once.
unsafe extern "C" fn reap<T: Send + Sync + 'static>(work: *mut bindings::work_struct) {
    // SAFETY: By the safety requirements.
    let object = unsafe { container_of!(Opaque::cast_from(work), Reaped<T>, work) };
    if let Some(object) = NonNull::new(object.cast_mut()) {
        // SAFETY: By the safety requirements; a work queue may sleep.
        unsafe { Reaped::<T>::free(object) }
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::macros::kunit_tests(nvfs_reaper)]
mod tests {
    use super::*;
    use kernel::{
        current,
        sync::rcu, //
    };

    /// Who dropped the last one, and how many were dropped.
    static DROPPER: Atomic<i32> = Atomic::new(0);
    static DROPPED: Atomic<u32> = Atomic::new(0);
    static DEFERRED: Atomic<u32> = Atomic::new(0);

    struct Probe;

    impl Drop for Probe {
        fn drop(&mut self) {
            DROPPER.store(current!().pid(), Relaxed);
            DROPPED.store(DROPPED.load(Relaxed) + 1, Relaxed);
        }
    }

    impl Deferred for Probe {
        fn deferred(this: ARef<Reaped<Self>>) {
            // The kernel says so in its log where that is wrong.
            kernel::task::might_sleep();
            if current!().pid() != DROPPER.load(Relaxed) {
                DEFERRED.store(DEFERRED.load(Relaxed) + 1, Relaxed);
            }
            drop(this);
        }
    }

    /// A reaper, an object of it, and nothing dropped yet.
    fn begin() -> Result<(Reaper, ARef<Reaped<Probe>>)> {
        let reaper = Reaper::new(c"kunit")?;
        let object = Reaped::new(&reaper.handle(), Probe)?;
        DROPPER.store(0, Relaxed);
        DROPPED.store(0, Relaxed);
        DEFERRED.store(0, Relaxed);
        Ok((reaper, object))
    }

    /// Tests run in threads of the kernel, so this is not the place to see what a process frees.
    #[test]
    fn a_thread_of_the_kernel_leaves_it_to_another() -> Result {
        let (reaper, object) = begin()?;
        let other = object.clone();
        drop(object);
        assert_eq!(DROPPED.load(Relaxed), 0);
        drop(other);
        drop(reaper);
        assert_eq!(DROPPED.load(Relaxed), 1);
        assert!(DROPPER.load(Relaxed) != current!().pid());
        Ok(())
    }

    #[test]
    fn freed_by_another_where_it_is_not() -> Result {
        let (reaper, object) = begin()?;
        let guard = rcu::read_lock();
        drop(object);
        drop(guard);
        drop(reaper);
        assert_eq!(DROPPED.load(Relaxed), 1);
        assert!(DROPPER.load(Relaxed) != current!().pid());
        Ok(())
    }

    #[test]
    fn none_is_found_after_the_last_reference() -> Result {
        let (reaper, object) = begin()?;
        let raw = ARef::into_raw(object);
        let guard = rcu::read_lock();
        // SAFETY: An object of this moment.
        let found = unsafe { Reaped::try_get(raw) }.is_some();
        // SAFETY: The reference of above.
        drop(unsafe { ARef::from_raw(raw) });
        // SAFETY: It was an object when the guard was taken.
        let found_again = unsafe { Reaped::try_get(raw) }.is_some();
        drop(guard);
        drop(reaper);
        assert!(found);
        assert!(!found_again);
        assert_eq!(DROPPED.load(Relaxed), 1);
        Ok(())
    }

    #[test]
    fn nothing_is_made_after_the_reaper() -> Result {
        let reaper = Reaper::new(c"kunit")?;
        let handle = reaper.handle();
        drop(reaper);
        assert!(matches!(Reaped::new(&handle, Probe), Err(e) if e == ENODEV));
        Ok(())
    }

    #[test]
    fn what_is_put_off_comes_before_the_reaper_goes() -> Result {
        let (reaper, object) = begin()?;
        DROPPER.store(current!().pid(), Relaxed);
        let guard = rcu::read_lock();
        let queued = Reaped::later(object).is_ok();
        drop(guard);
        drop(reaper);
        assert!(queued);
        assert_eq!(DEFERRED.load(Relaxed), 1);
        assert_eq!(DROPPED.load(Relaxed), 1);
        Ok(())
    }
}
