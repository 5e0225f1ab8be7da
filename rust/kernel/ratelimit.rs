// SPDX-License-Identifier: GPL-2.0

//! Rate-limited log lines.
//!
//! C header: `include/linux/ratelimit.h`.

use crate::bindings;
use kernel::{
    prelude::*,
    types::Opaque, //
};

/// A limit on how often something is logged: `burst` times in each minute.
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
    const INTERVAL_MS: u32 = 60_000;

    /// Allows `burst` lines in a minute.
    pub fn new(burst: c_int) -> impl PinInit<Self> {
        // CAST: A minute of jiffies is far below `c_int::MAX`.
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
