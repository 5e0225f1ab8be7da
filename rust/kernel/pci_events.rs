// SPDX-License-Identifier: GPL-2.0

//! To be told when PCI functions come and go.
//!
//! C headers: `include/linux/device/bus.h`, `include/linux/workqueue.h`.

use crate::{
    bindings,
    pci, //
};
use kernel::{
    container_of,
    error::to_result,
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

/// What happens after a function came, went, or got or lost its driver.
pub trait Follow: Send + Sync + 'static {
    /// At once, under locks of the driver core. Must not sleep for long.
    fn notice(&self);

    /// A little later, once for all that happened meanwhile. May sleep.
    fn follow(&self);
}

/// Calls `T` until it is dropped. Without one, no functions are found, see [`pci::look`].
///
/// # Invariants
///
/// `notifier` is registered with the PCI bus, `work` is initialised, and one watch of `pci` is owned.
#[pin_data(PinnedDrop)]
pub struct Events<T: Follow> {
    follower: Arc<T>,
    #[pin]
    notifier: Opaque<bindings::notifier_block>,
    #[pin]
    work: Opaque<bindings::work_struct>,
}

// SAFETY: The notifier and the work item are touched only by the kernel, under its locks.
unsafe impl<T: Follow> Send for Events<T> {}
// SAFETY: As above.
unsafe impl<T: Follow> Sync for Events<T> {}

impl<T: Follow> Events<T> {
    /// Begins to tell `follower`. May sleep. Fails with `ENOMEM`.
    pub fn new(follower: Arc<T>) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            follower,
            work <- Opaque::ffi_init(|work| {
                // SAFETY: Memory for a work item.
                unsafe { bindings::nvfs_helper_init_work(work, Some(follow::<T>)) }
            }),
            // INVARIANT: The last field, so that all is there when the first event comes.
            notifier <- Opaque::try_ffi_init(|notifier: *mut bindings::notifier_block| {
                let block = bindings::notifier_block {
                    notifier_call: Some(notice::<T>),
                    ..Default::default()
                };
                // SAFETY: Memory for a notifier.
                unsafe { notifier.write(block) };
                // SAFETY: The notifier does not move until it is unregistered by `drop`.
                to_result(unsafe {
                    bindings::bus_register_notifier(&raw const bindings::pci_bus_type, notifier)
                })?;
                // SAFETY: `notice` tells it from now on; `drop` ends it first.
                unsafe { pci::begin_watch() };
                Ok::<(), Error>(())
            }),
        })
    }
}

#[pinned_drop]
impl<T: Follow> PinnedDrop for Events<T> {
    fn drop(self: Pin<&mut Self>) {
        // While its notifier is still there: those who look at the bus now need it.
        pci::end_watch();
        // SAFETY: By the type invariant. It waits for callbacks that run.
        unsafe {
            bindings::bus_unregister_notifier(
                &raw const bindings::pci_bus_type,
                self.notifier.get(),
            )
        };
        // SAFETY: By the type invariant; nobody queues it any more. It waits for it to end.
        unsafe { bindings::cancel_work_sync(self.work.get()) };
    }
}

/// # Safety
///
/// Only for the bus, on the notifier of an `Events<T>`.
unsafe extern "C" fn notice<T: Follow>(
    notifier: *mut bindings::notifier_block,
    event: c_ulong,
    _device: *mut c_void,
) -> c_int {
    // SAFETY: By the safety requirements.
    let events = unsafe { &*container_of!(Opaque::cast_from(notifier), Events<T>, notifier) };
    if matches!(
        u32::try_from(event),
        Ok(bindings::bus_notifier_event_BUS_NOTIFY_ADD_DEVICE
            | bindings::bus_notifier_event_BUS_NOTIFY_REMOVED_DEVICE
            | bindings::bus_notifier_event_BUS_NOTIFY_BOUND_DRIVER
            | bindings::bus_notifier_event_BUS_NOTIFY_UNBOUND_DRIVER)
    ) {
        pci::reopen();
        events.follower.notice();
        // SAFETY: By the type invariant.
        unsafe { bindings::nvfs_helper_schedule_work(events.work.get()) };
    }
    // After the driver core took it off its lists, and before anything that it needs is freed.
    if u32::try_from(event) == Ok(bindings::bus_notifier_event_BUS_NOTIFY_REMOVED_DEVICE) {
        pci::removed();
    }
    bindings::NOTIFY_DONE as c_int
}

/// # Safety
///
/// Only for the work queue, on the work item of an `Events<T>`.
unsafe extern "C" fn follow<T: Follow>(work: *mut bindings::work_struct) {
    // SAFETY: By the safety requirements; `drop` waits for us.
    let events = unsafe { &*container_of!(Opaque::cast_from(work), Events<T>, work) };
    events.follower.follow();
}
