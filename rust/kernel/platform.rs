// SPDX-License-Identifier: GPL-2.0

//! Facts about the machine and the calling task.

use crate::bindings;

/// Whether this is an x86-64 machine that is not a virtual one.
pub fn is_bare_x86() -> bool {
    // SAFETY: Only looks at the boot CPU's features.
    unsafe { bindings::nvfs_helper_is_x86() && !bindings::nvfs_helper_on_hypervisor() }
}

/// Whether the calling task is being killed.
pub fn is_dying() -> bool {
    // SAFETY: Only looks at the calling task.
    unsafe { bindings::nvfs_helper_fatal_signal_pending() }
}

/// Nanoseconds of the monotonic clock. Callable in any context.
pub fn monotonic_ns() -> i64 {
    // SAFETY: Only reads the clock.
    unsafe { bindings::ktime_get() }
}

/// Sleeps for about `ms` milliseconds.
pub fn sleep_ms(ms: u32) {
    // SAFETY: May sleep by this function's own nature.
    unsafe { bindings::msleep(ms) }
}

/// Whether the caller may sleep for long: a process in a system call or at its end, as far as the kernel
/// can tell, not a thread of the kernel. Callable in any context.
pub fn may_sleep() -> bool {
    // SAFETY: Only looks at the context.
    unsafe { bindings::nvfs_helper_may_sleep() }
}
