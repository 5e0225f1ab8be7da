// SPDX-License-Identifier: GPL-2.0

//! Counted objects whose last reference may be dropped in any context, although freeing them
//! sleeps, and a reaper that waits for all of them before the module goes.
//!
//! C header: `include/linux/workqueue.h`.

use crate::{
    bindings,
    completion::Event, //
};
use core::{
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
    /// For those who make objects. To be used only while the reaper lives.
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
    }
}

/// A counted object. When its last reference goes, it is freed at once if the context may sleep,
/// else a little later by the [`Reaper`].
///
/// # Invariants
///
/// It is in a `KBox`, which the last reference frees.
#[pin_data]
pub struct Reaped<T> {
    refs: Refcount,
    reaper: Arc<Inner>,
    work: Opaque<bindings::work_struct>,
    #[pin]
    data: T,
}

// SAFETY: The other fields are touched by atomics, or by the last owner alone.
unsafe impl<T: Send + Sync> Send for Reaped<T> {}
// SAFETY: As above.
unsafe impl<T: Send + Sync> Sync for Reaped<T> {}

impl<T: Send + Sync + 'static> Reaped<T> {
    /// Makes an object, with one reference. May sleep. Fails with `ENOMEM`, or as `data` does.
    pub fn new<E>(reaper: &Handle, data: impl PinInit<T, E>) -> Result<ARef<Self>>
    where
        Error: From<E>,
    {
        let boxed = KBox::try_pin_init(
            try_pin_init!(Self {
                refs: Refcount::new(1),
                reaper: reaper.0.clone(),
                work: Opaque::uninit(),
                data <- data,
            }? Error),
            GFP_KERNEL_ACCOUNT,
        )?;
        reaper.0.live.inc();
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
        // SAFETY: By the safety requirements we own the object; it was a `KBox` by the type
        // invariant.
        let object = unsafe { Pin::new_unchecked(KBox::from_raw(this.as_ptr())) };
        let reaper = object.reaper.clone();
        drop(object);
        reaper.put();
    }
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
        let work = object.work.get();
        // SAFETY: Memory for a work item, not in use as it was the last reference.
        unsafe { bindings::nvfs_helper_init_work(work, Some(reap::<T>)) };
        // SAFETY: The queue lives, as this object is counted in it.
        unsafe {
            bindings::queue_work_on(
                bindings::wq_misc_consts_WORK_CPU_UNBOUND as c_int,
                object.reaper.queue.as_ptr(),
                work,
            )
        };
    }
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
