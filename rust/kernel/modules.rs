// SPDX-License-Identifier: GPL-2.0

//! How often modules came and went so far, to tell whether a look for new ones can find any.
//!
//! C headers: `include/linux/module.h`, `include/linux/notifier.h`.

use crate::{
    bindings,
    ratelimit::RateLimit, //
};
use kernel::{
    container_of,
    error::to_result,
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
    types::Opaque, //
};

static CHANGES: Atomic<u32> = Atomic::new(0);

/// How many modules that go are counted in a minute. One whose initialisation fails goes as well, and
/// any user can have some loaded that do, as often as he likes (a transform of AF_ALG for hardware that is
/// not there); each look for new symbols may make the kernel log lines.
const GOES: c_int = 4;

/// Changes each time a module has come, and when one goes, a few times a minute at most. Meaningful
/// while a [`Watch`] lives.
pub fn changes() -> u32 {
    CHANGES.load(Relaxed)
}

/// Counts the modules that come and go.
///
/// # Invariants
///
/// `block` is registered with the chain of modules.
#[pin_data(PinnedDrop)]
pub struct Watch {
    #[pin]
    gone: RateLimit,
    #[pin]
    block: Opaque<bindings::notifier_block>,
}

// SAFETY: The chain has its own lock.
unsafe impl Send for Watch {}
// SAFETY: As above.
unsafe impl Sync for Watch {}

impl Watch {
    /// Starts counting. May sleep.
    pub fn new() -> impl PinInit<Self, Error> {
        // INVARIANT: Registered, or there is an error.
        try_pin_init!(Self {
            gone <- RateLimit::new(GOES),
            block <- Opaque::try_ffi_init(|block: *mut bindings::notifier_block| {
                // SAFETY: Memory for a notifier block, pinned from now on.
                unsafe {
                    block.write(bindings::notifier_block {
                        notifier_call: Some(notify),
                        ..core::mem::zeroed()
                    });
                    to_result(bindings::register_module_notifier(block))
                }
            }),
        })
    }
}

#[pinned_drop]
impl PinnedDrop for Watch {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant.
        unsafe { bindings::unregister_module_notifier(self.block.get()) };
    }
}

/// # Safety
///
/// Only for the chain of modules, with the block of a [`Watch`].
unsafe extern "C" fn notify(
    block: *mut bindings::notifier_block,
    event: c_ulong,
    _module: *mut c_void,
) -> c_int {
    let counts = if event == bindings::module_state_MODULE_STATE_GOING as c_ulong {
        // SAFETY: The block is a watch's, which is there as long as it is registered.
        let watch = unsafe { &*container_of!(Opaque::cast_from(block), Watch, block) };
        watch.gone.allows()
    } else {
        event == bindings::module_state_MODULE_STATE_LIVE as c_ulong
    };
    if counts {
        CHANGES.fetch_add(1, Relaxed);
    }
    // NOTIFY_DONE
    0
}
