// SPDX-License-Identifier: GPL-2.0

//! The storage drivers with nvidia-fs hooks: who they are, and when they have our tables.
//!
//! Contract sections 2.5, 14.4 to 14.6 and 19.4.

use crate::buffer::Buffer;
use kernel::{
    fmt,
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        new_mutex,
        Mutex, //
    }, //
};
use nvfs_kernel::{
    block::Disk,
    dma_ops::{
        pairs,
        NotTaken,
        Nvme,
        Offer,
        Pair,
        Plain,
        Registration,
        Table, //
    },
    file::IoFile,
    modules,
    ratelimit::RateLimit, //
};

static V1_NVME: Table<Buffer> = Table::v1::<Nvme>();
static V1_PLAIN: Table<Buffer> = Table::v1::<Plain>();
static V2: Table<Buffer> = Table::v2();

/// Whose data goes through a driver.
enum Serves {
    /// Disks whose requests it gets.
    Disks,
    /// Files of a file system, by its magic number.
    FileSystem(u64),
}

/// A storage driver. The offers are made in order.
struct Vendor {
    key: &'static str,
    version: &'static str,
    offers: &'static [Offer<Buffer>],
    serves: Serves,
}

const COUNT: usize = 11;

/// In the order of `modules`.
static VENDORS: [Vendor; COUNT] = [
    Vendor {
        key: "nvme",
        version: "(null)",
        offers: &[
            Offer::new(&pairs::NVME_V2, &V2),
            Offer::new(&pairs::NVME_V1, &V1_NVME),
        ],
        serves: Serves::Disks,
    },
    Vendor {
        key: "nvme_rdma",
        version: "(null)",
        offers: &[Offer::new(&pairs::NVME_RDMA, &V1_NVME)],
        serves: Serves::Disks,
    },
    Vendor {
        key: "sfxvdriver",
        version: "(null)",
        offers: &[Offer::new(&pairs::SFXV, &V1_NVME)],
        serves: Serves::Disks,
    },
    Vendor {
        key: "nvmeib_common",
        version: "(null)",
        offers: &[Offer::new(&pairs::NVMESH, &V1_NVME)],
        serves: Serves::Disks,
    },
    Vendor {
        key: "lnet",
        version: "(null)",
        offers: &[Offer::new(&pairs::LUSTRE, &V1_PLAIN)],
        serves: Serves::FileSystem(0x0bd0_0bd0),
    },
    Vendor {
        key: "beegfs",
        version: "(null)",
        offers: &[Offer::new(&pairs::BEEGFS, &V1_PLAIN)],
        serves: Serves::FileSystem(0x1983_0326),
    },
    Vendor {
        key: "wekafsio",
        version: "1",
        offers: &[],
        serves: Serves::FileSystem(0x1031_1970),
    },
    Vendor {
        key: "mmfslinux",
        version: "(null)",
        offers: &[Offer::new(&pairs::IBM_SCALE, &V1_PLAIN)],
        serves: Serves::FileSystem(0x4750_4653),
    },
    Vendor {
        key: "rpcrdma",
        version: "(null)",
        offers: &[Offer::new(&pairs::RPCRDMA, &V1_PLAIN)],
        serves: Serves::FileSystem(0x6969),
    },
    Vendor {
        key: "scatefs",
        version: "(null)",
        offers: &[Offer::new(&pairs::SCATEFS, &V1_PLAIN)],
        serves: Serves::FileSystem(0x5354_4653),
    },
    Vendor {
        key: "scsi_mod",
        version: "0",
        offers: &[Offer::new(&pairs::SCSI, &V1_PLAIN)],
        serves: Serves::Disks,
    },
];

/// Which storage drivers have our tables. They get them when the first user comes, and lose them
/// when the last one goes; users are open nodes and mapped buffers.
///
/// Lock order: nothing that a storage driver's call or the end of a transfer needs is held when the
/// lock is taken, nor taken under it by us.
#[pin_data]
pub(crate) struct Vendors {
    #[pin]
    state: Mutex<State>,
    /// Changes when a driver gets or loses a table.
    generation: Atomic<u32>,
    /// How many have a table.
    registered: Atomic<u32>,
    /// For what comes of our offers.
    #[pin]
    log: RateLimit,
}

struct State {
    users: usize,
    registered: [Option<Registration>; COUNT],
    /// What came of the last offer to each, if it has hooks.
    outcomes: [Option<Outcome>; COUNT],
    /// The count of changes of modules when we looked for each last, unless it is to be looked for
    /// anyway. The kernel writes to its log whenever a symbol is found that is not for us.
    looked: [Option<u32>; COUNT],
}

impl Vendors {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            state <- new_mutex!(State {
                users: 0,
                registered: [const { None }; COUNT],
                outcomes: [None; COUNT],
                looked: [None; COUNT],
            }),
            generation: Atomic::new(0),
            registered: Atomic::new(0),
            log <- RateLimit::new(40),
        })
    }

    /// A node was opened: offers our tables to all who do not have them. May sleep.
    pub(crate) fn open(&self) {
        let mut state = self.state.lock();
        state.users += 1;
        // Only if modules came or went since the last look, there can be news.
        let changes = Some(modules::changes());
        let State {
            registered,
            outcomes,
            looked,
            ..
        } = &mut *state;
        let slots = registered.iter_mut().zip(outcomes).zip(looked);
        for (vendor, ((slot, outcome), looked)) in VENDORS.iter().zip(slots) {
            if slot.is_none() && *looked != changes {
                *looked = changes;
                let before = *outcome;
                (*slot, *outcome) = offer(vendor);
                if let Some(outcome) = outcome.filter(|_| *outcome != before) {
                    self.tell(vendor, outcome);
                }
                if slot.is_some() {
                    self.registered.fetch_add(1, Relaxed);
                    self.generation.fetch_add(1, Relaxed);
                }
            }
        }
    }

    /// Says in the log what came of an offer.
    fn tell(&self, vendor: &Vendor, outcome: Outcome) {
        if !self.log.allows() {
            return;
        }
        match outcome {
            Outcome::Taken => pr_info!("{} takes GPU memory by its nvidia-fs hooks\n", vendor.key),
            Outcome::Failed(why) => pr_warn!(
                "{}: its nvidia-fs hooks are not used: {}\n",
                vendor.key,
                why
            ),
        }
    }

    /// A buffer was mapped.
    pub(crate) fn join(&self) {
        self.state.lock().users += 1;
    }

    /// One user less; the last one takes all tables back. Sleeps until no storage driver has a call
    /// under way.
    pub(crate) fn leave(&self) {
        let mut state = self.state.lock();
        // OVERFLOW: This user has been counted.
        state.users -= 1;
        if state.users == 0 {
            let State {
                registered,
                outcomes,
                looked,
                ..
            } = &mut *state;
            let slots = registered.iter_mut().zip(outcomes).zip(looked);
            for ((slot, outcome), looked) in slots {
                // A driver may think better of it, but exports stay as they are.
                if outcome.is_some_and(|o| !matches!(o, Outcome::Failed(Failure::Hidden(_)))) {
                    *looked = None;
                }
                if slot.take().is_some() {
                    self.registered.fetch_add(u32::MAX, Relaxed);
                    self.generation.fetch_add(1, Relaxed);
                }
            }
        }
    }

    /// Whether no storage driver has a table.
    pub(crate) fn is_empty(&self) -> bool {
        self.registered.load(Relaxed) == 0
    }

    /// Changes whenever a driver gets or loses a table.
    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Relaxed)
    }

    /// Whether the driver of a disk has a table. May sleep.
    pub(crate) fn serve_disk(&self, disk: &Disk) -> bool {
        let module = disk.module();
        let state = self.state.lock();
        VENDORS.iter().zip(&state.registered).any(|(vendor, slot)| {
            matches!(vendor.serves, Serves::Disks)
                && slot.as_ref().is_some_and(|slot| {
                    if module.is_none() {
                        // Both are in the kernel itself.
                        slot.module().is_none() && disk.is_named_after(vendor.key)
                    } else {
                        slot.module() == module
                    }
                })
        })
    }

    /// Whether the driver behind a file system has a table. May sleep.
    pub(crate) fn serve_file_system(&self, file: &IoFile) -> bool {
        let magic = file.file_system_magic();
        let state = self.state.lock();
        VENDORS.iter().zip(&state.registered).any(|(vendor, slot)| {
            matches!(vendor.serves, Serves::FileSystem(served) if served == magic) && slot.is_some()
        })
    }

    /// Writes whose hooks are not used, and why, a line each.
    pub(crate) fn show_failures(&self, m: &SeqFile) {
        let state = self.state.lock();
        for (vendor, outcome) in VENDORS.iter().zip(&state.outcomes) {
            if let Some(Outcome::Failed(failure)) = outcome {
                seq_print!(m, "# {}: its hooks are not used: {}\n", vendor.key, failure);
            }
        }
    }

    /// Writes `modules`; `nvme` is there also when P2PDMA makes up for it.
    pub(crate) fn show(&self, m: &SeqFile, nvme: bool) {
        let state = self.state.lock();
        for (index, (vendor, slot)) in VENDORS.iter().zip(&state.registered).enumerate() {
            if slot.is_some() || vendor.offers.is_empty() || (index == 0 && nvme) {
                seq_print!(m, "{}: {}\n", vendor.key, vendor.version);
            }
        }
    }
}

/// Why a storage driver's hooks are not used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// A pair is not exported for GPL modules.
    Hidden(&'static Pair),
    /// One function of a pair is missing.
    Half(&'static Pair),
    /// It refused a table, with this error.
    Refused(&'static Pair, c_int),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hidden(pair) => {
                f.write_fmt(fmt!("{} is not exported for GPL modules", pair.register()))
            }
            Self::Half(pair) => f.write_fmt(fmt!(
                "one of {} and {} is missing",
                pair.register(),
                pair.unregister()
            )),
            Self::Refused(pair, error) => {
                f.write_fmt(fmt!("{} refuses with error {}", pair.register(), error))
            }
        }
    }
}

/// What came of an offer to a driver that has hooks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It has a table.
    Taken,
    /// Its hooks are not used.
    Failed(Failure),
}

/// Offers our tables to one driver, the best first. May sleep.
fn offer(vendor: &'static Vendor) -> (Option<Registration>, Option<Outcome>) {
    let mut why = None;
    for offer in vendor.offers {
        let pair = offer.pair();
        match Registration::new(offer) {
            Ok(registration) => return (Some(registration), Some(Outcome::Taken)),
            Err(NotTaken::Absent) => (),
            Err(NotTaken::Hidden) => why = why.or(Some(Failure::Hidden(pair))),
            Err(NotTaken::Half) => why = why.or(Some(Failure::Half(pair))),
            Err(NotTaken::Refused(e)) => {
                why = why.or(Some(Failure::Refused(pair, e.to_errno())));
            }
        }
    }
    (None, why.map(Outcome::Failed))
}
