// SPDX-License-Identifier: GPL-2.0

//! Module parameters; contract section 1.4. All can be read by anybody and written by root.

use nvfs_kernel::{
    choice_param,
    file,
    gpu,
    platform,
    uint_param, //
};

/// The most device nodes there can be.
const MAX_NODES: u32 = 16;

/// A value that nobody gives: tells whether the administrator gave one.
const NOT_GIVEN: u32 = u32::MAX;

uint_param!(pub(crate) MAX_DEVICES, "max_devices", 16, "number of device nodes, 1 to 16 (read at load)");
uint_param!(pub(crate) DEBUG, "dbg_enabled", 0, "log debug lines");
uint_param!(pub(crate) INFO, "info_enabled", 1, "log information lines");
uint_param!(pub(crate) PEER_STATS, "peer_stats_enabled", 0, "count DMA for each pair of GPU and peer");
uint_param!(pub(crate) RW_STATS, "rw_stats_enabled", 0, "count reads, writes and batches");
uint_param!(
    pub(crate) LEGACY_PINS,
    "use_legacy_p2p_allocation",
    NOT_GIVEN,
    "pin GPU memory so that it can be freed under us (default: by driver and platform)"
);
choice_param!(
    pub(crate) P2PDMA,
    "p2pdma",
    [c"auto", c"off", c"only"],
    "use upstream P2PDMA: auto (where the storage driver has no nvidia-fs hooks), off, only"
);

/// The parameter `p2pdma`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum P2pdma {
    /// Where the storage driver has no hooks.
    Auto,
    /// Never.
    Off,
    /// Always, also where the storage driver has hooks.
    Only,
}

/// Whether P2PDMA may be used now.
pub(crate) fn p2pdma() -> P2pdma {
    match P2PDMA.get() {
        0 => P2pdma::Auto,
        1 => P2pdma::Off,
        _ => P2pdma::Only,
    }
}

/// The number of nodes to make.
pub(crate) fn device_count() -> u32 {
    match MAX_DEVICES.get() {
        0 => MAX_NODES,
        count => count.min(MAX_NODES),
    }
}

/// How MAP pins from now on.
pub(crate) fn pin_kind() -> gpu::Kind {
    match LEGACY_PINS.get() {
        0 => gpu::Kind::Persistent,
        _ => gpu::Kind::Legacy,
    }
}

/// Sets the default of `use_legacy_p2p_allocation` where none was given: contract section 1.5.
/// May sleep.
pub(crate) fn settle_pin_kind() {
    if LEGACY_PINS.get() != NOT_GIVEN {
        return;
    }
    let new_driver = file::read_start(c"/sys/module/nvidia/version")
        .ok()
        .and_then(|text: [u8; 3]| number(&text))
        .is_some_and(|major| major >= 555);
    let persistent = new_driver || platform::is_bare_x86();
    LEGACY_PINS.set(u32::from(!persistent));
}

/// A decimal number.
fn number(text: &[u8]) -> Option<u32> {
    core::str::from_utf8(text).ok()?.parse().ok()
}
