// SPDX-License-Identifier: GPL-2.0

//! Rate-limited log lines.
//!
//! C header: `include/linux/ratelimit.h`.

use crate::bindings;
use kernel::{
    prelude::*,
    types::Opaque, //
};

/// A limit on how often something is logged: `burst` times in each five seconds.
///
/// # Invariants
///
/// `inner` is an initialized `struct ratelimit_state`.
#[pin_data]
pub struct RateLimit {
    #[pin]
    inner: Opaque<bindings::ratelimit_state>,
}

// SAFETY: The C type is made for concurrent use in any context.
unsafe impl Send for RateLimit {}
// SAFETY: As above.
unsafe impl Sync for RateLimit {}

impl RateLimit {
    /// Five seconds, in jiffies' unit of the C macro `DEFAULT_RATELIMIT_INTERVAL`.
    const INTERVAL_MS: u32 = 5000;

    /// Allows `burst` lines in five seconds.
    pub fn new(burst: c_int) -> impl PinInit<Self> {
        // CAST: Five seconds of jiffies are far below `c_int::MAX`.
        let interval = kernel::time::msecs_to_jiffies(Self::INTERVAL_MS) as c_int;
        // INVARIANT: Initialized in place.
        pin_init!(Self {
            inner <- Opaque::ffi_init(move |inner| {
                // SAFETY: Memory for the state, pinned from now on.
                unsafe { bindings::nvfs_helper_ratelimit_state_init(inner, interval, burst) }
            }),
        })
    }

    /// Tells whether one more line may be logged now. Callable in any context.
    pub fn allows(&self) -> bool {
        // SAFETY: By the type invariant; the name is a C string that lives for ever.
        unsafe { bindings::___ratelimit(self.inner.get(), c"nvidia-fs".as_char_ptr()) != 0 }
    }
}
