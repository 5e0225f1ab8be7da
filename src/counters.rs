// SPDX-License-Identifier: GPL-2.0

//! `/proc/driver/nvidia-fs/counters`: what a monitoring agent wants to know. Always counted, never
//! reset, names never change.
//!
//! What there is now is what was taken without what was given back: two counters that only grow,
//! read in the order in which the difference cannot be negative.

use crate::path::Way;
use kernel::{
    prelude::*,
    seq_file::SeqFile,
    seq_print, //
};
use nvfs_kernel::{
    kiocb::Direction,
    percpu::Counters, //
};

macro_rules! totals {
    ($($(#[$doc:meta])* $total:ident = $name:literal,)*) => {
        /// What is counted.
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Total {
            $($(#[$doc])* $total,)*
        }

        impl Total {
            const ALL: [Self; [$($name),*].len()] = [$(Self::$total),*];

            /// Its name in the file.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$total => $name,)*
                }
            }
        }
    };
}

totals! {
    /// Reads for which a way was found, when they are over.
    ReadP2pdmaIos = "read_p2pdma_ios",
    /// Bytes of the good ones.
    ReadP2pdmaBytes = "read_p2pdma_bytes",
    /// Those that failed.
    ReadP2pdmaErrors = "read_p2pdma_errors",
    /// As above, and so on.
    ReadCallbackIos = "read_callback_ios",
    ReadCallbackBytes = "read_callback_bytes",
    ReadCallbackErrors = "read_callback_errors",
    WriteP2pdmaIos = "write_p2pdma_ios",
    WriteP2pdmaBytes = "write_p2pdma_bytes",
    WriteP2pdmaErrors = "write_p2pdma_errors",
    WriteCallbackIos = "write_callback_ios",
    WriteCallbackBytes = "write_callback_bytes",
    WriteCallbackErrors = "write_callback_errors",
    /// Reads and writes that did not pass the checks of contract section 9.1.
    ReadsRejected = "read_rejected",
    WritesRejected = "write_rejected",
    /// Reads and writes for which there was no way, by the reason.
    RefusedOff = "refused_off",
    RefusedNoGpu = "refused_no_gpu",
    RefusedBar = "refused_bar",
    RefusedNoMemory = "refused_no_memory",
    RefusedKind = "refused_kind",
    RefusedNoDevice = "refused_no_device",
    RefusedFileSystem = "refused_file_system",
    RefusedDax = "refused_dax",
    RefusedBuffered = "refused_buffered",
    RefusedUnknown = "refused_unknown",
    RefusedAlignment = "refused_alignment",
    RefusedRealtime = "refused_realtime",
    RefusedStableWrites = "refused_stable_writes",
    RefusedStacked = "refused_stacked",
    RefusedDriver = "refused_driver",
    RefusedNotPci = "refused_not_pci",
    RefusedMapping = "refused_mapping",
    RefusedTopology = "refused_topology",
    /// Ranges of GPU memory that MAP has pinned.
    Pins = "pins_total",
    /// Those that are no more.
    Unpins = "unpins_total",
    /// MAPs that failed.
    PinsFailed = "pins_failed",
    /// DMA mappings of such ranges that the GPU driver made for peers.
    Mappings = "dma_mappings_total",
    /// Those that are no more.
    Unmappings = "dma_unmappings_total",
    /// Those that it did not make.
    MappingsFailed = "dma_mappings_failed",
    /// Segments that storage drivers took.
    Segments = "segments_total",
    /// Those that they gave back.
    SegmentsBack = "segments_returned",
    /// Holes told to programs.
    Holes = "holes_total",
    /// Blocks of 4096 bytes of them.
    HoleBlocks = "hole_blocks_total",
    /// Free callbacks of the GPU driver.
    Callbacks = "free_callbacks_total",
}

const COUNT: usize = Total::ALL.len();

/// The counters that only grow.
pub(crate) struct Totals(Counters<COUNT>);

impl Totals {
    /// All zero. May sleep. Fails with `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        Counters::new().map(Self)
    }

    /// Counts one more. Callable in any context.
    pub(crate) fn count(&self, total: Total) {
        self.add(total, 1);
    }

    /// Adds. Callable in any context.
    pub(crate) fn add(&self, total: Total, value: u64) {
        self.0.add(total as usize, value);
    }

    /// A read or write is over, that went this way: `bytes` if it was good. Callable in any
    /// context.
    pub(crate) fn io(&self, way: Way, direction: Direction, bytes: Option<u64>) {
        use Total::*;
        let (ios, moved, errors) = match (direction, way) {
            (Direction::Read, Way::P2pdma) => (ReadP2pdmaIos, ReadP2pdmaBytes, ReadP2pdmaErrors),
            (Direction::Read, Way::Callback) => {
                (ReadCallbackIos, ReadCallbackBytes, ReadCallbackErrors)
            }
            (Direction::Write, Way::P2pdma) => {
                (WriteP2pdmaIos, WriteP2pdmaBytes, WriteP2pdmaErrors)
            }
            (Direction::Write, Way::Callback) => {
                (WriteCallbackIos, WriteCallbackBytes, WriteCallbackErrors)
            }
        };
        self.count(ios);
        match bytes {
            Some(bytes) => self.add(moved, bytes),
            None => self.count(errors),
        }
    }

    /// Writes the file: a line each, name and number.
    pub(crate) fn show(&self, m: &SeqFile) {
        for total in Total::ALL {
            seq_print!(m, "{} {}\n", total.name(), self.get(total));
        }
        let now = [
            ("pins_now", Total::Pins, Total::Unpins),
            ("dma_mappings_now", Total::Mappings, Total::Unmappings),
            ("segments_now", Total::Segments, Total::SegmentsBack),
        ];
        for (name, taken, back) in now {
            let back = self.get(back);
            seq_print!(m, "{} {}\n", name, self.get(taken).saturating_sub(back));
        }
    }

    fn get(&self, total: Total) -> u64 {
        self.0.sum(total as usize)
    }
}
