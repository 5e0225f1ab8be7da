// SPDX-License-Identifier: GPL-2.0

//! How far GPUs and their peers are from each other, and what follows from it: pure functions.
//! Contract section 20.
//!
//! Not symmetric: a bridge with ACS on counts only when it is not the GPU's nearest one.

/// The distance when it is not known.
pub(crate) const UNKNOWN: u32 = u32::MAX;

/// From this distance on, traffic goes through a root complex.
const CROSS: u32 = 127;

/// What a way through a root complex costs between different or unknown NUMA nodes.
const CROSS_NODES: u32 = 254;

/// How far the kernel says that a NUMA node is from itself.
const SAME_NODE: u32 = 10;

/// The control bits of ACS that exist.
const ACS_CONTROLS: u16 = 0x7f;

/// The worst link: more lanes times generation than this are all alike.
const MAX_LINK: u32 = 160;

/// PCI vendor NVIDIA.
const NVIDIA: u16 = 0x10de;

/// PCI classes of GPUs (3D and VGA controllers) and peers (InfiniBand, Ethernet, NVMe), in the
/// order in which they are listed; 24 bits with the programming interface.
pub(crate) const GPU_CLASSES: [u32; 2] = [0x03_02_00, 0x03_00_00];
pub(crate) const PEER_CLASSES: [u32; 3] = [0x02_07_00, 0x02_00_00, NVME];

/// PCI class of NVMe controllers.
pub(crate) const NVME: u32 = 0x01_08_02;

/// PCI class of bridges to another PCI bus.
pub(crate) const BRIDGE: u32 = 0x06_04_00;

/// Whether a function is one of NVIDIA's GPUs.
pub(crate) fn is_gpu(vendor: u16, class: u32) -> bool {
    vendor == NVIDIA && GPU_CLASSES.contains(&class)
}

/// What a peer of this class is called.
pub(crate) fn class_name(class: u32) -> &'static str {
    match class {
        0x02_07_00 | 0x02_00_00 => "network",
        NVME => "nvme",
        _ => "x",
    }
}

/// Whether ACS is on, from the words of the capability.
pub(crate) fn acs_is_on(capabilities: u16, control: u16) -> bool {
    capabilities != 0 && control & ACS_CONTROLS != 0
}

/// A bridge on the way from a function to the root complex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bridge {
    /// Which one: its PCI address as a number.
    pub(crate) id: u64,
    /// ACS is on.
    pub(crate) acs: bool,
}

/// Distance between a GPU and a peer, from the bridges above each, nearest first; `None` where
/// they are not known. `local` says whether both are at one NUMA node.
pub(crate) fn distance(gpu: Option<&[Bridge]>, peer: Option<&[Bridge]>, local: bool) -> u32 {
    let (Some(gpu), Some(peer)) = (gpu, peer) else {
        return UNKNOWN;
    };
    let id = |bridge: &Bridge| bridge.id;
    let same_root = gpu.last().is_some() && gpu.last().map(id) == peer.last().map(id);
    let steps = if same_root {
        common_root(gpu, peer)
    } else {
        let base = if local { CROSS } else { CROSS_NODES };
        gpu.len()
            .saturating_add(peer.len())
            .saturating_add(1)
            .saturating_add(base as usize)
    };
    u32::try_from(steps).unwrap_or(UNKNOWN)
}

/// The distance of two below one root port: through their lowest common bridge.
fn common_root(gpu: &[Bridge], peer: &[Bridge]) -> usize {
    let meeting = gpu.iter().enumerate().find_map(|(below_gpu, bridge)| {
        let below_peer = peer.iter().position(|other| other.id == bridge.id)?;
        Some((below_gpu, below_peer, bridge.acs))
    });
    let Some((below_gpu, below_peer, acs)) = meeting else {
        return UNKNOWN as usize;
    };
    let detour = if acs && below_gpu > 0 {
        gpu.len() - 1 - below_gpu
    } else {
        0
    };
    below_gpu
        .saturating_add(below_peer)
        .saturating_add(1)
        .saturating_add(detour)
}

/// Whether two NUMA nodes count as one; `None` is a node that is not known. `between` is the
/// kernel's distance of two known ones.
pub(crate) fn is_local(a: Option<u32>, b: Option<u32>, between: impl Fn(u32, u32) -> u32) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => between(a, b) == SAME_NODE,
        (None, None) => true,
        _ => false,
    }
}

/// Lanes and generation of a PCI Express link, from its status word; 0 where it does not tell.
pub(crate) fn link(status: u16) -> (u32, u32) {
    // What a function that does not answer reads as.
    if status == u16::MAX {
        return (0, 0);
    }
    let generation = match status & 0xf {
        known @ 1..=6 => known,
        _ => 0,
    };
    (u32::from(status >> 4 & 0x3f), u32::from(generation))
}

/// How good a peer is for a GPU, smaller is better: first the distance counts, then the link.
pub(crate) fn rank(distance: u32, lanes: u32, generation: u32) -> u32 {
    let link = lanes.saturating_mul(generation).min(MAX_LINK);
    (distance & 0xffff) << 16 | (MAX_LINK - link)
}

/// DMA counts of one GPU by distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Affinity {
    /// For distances 1 to 32.
    pub(crate) columns: [u64; 32],
    /// Through a root complex.
    pub(crate) cross: u64,
    /// At all distances.
    all: u64,
}

impl Affinity {
    /// Nothing counted.
    pub(crate) fn new() -> Self {
        Self {
            columns: [0; 32],
            cross: 0,
            all: 0,
        }
    }

    /// Adds what one pair counted.
    pub(crate) fn add(&mut self, distance: u32, count: u64) {
        self.all = self.all.saturating_add(count);
        if distance >= CROSS {
            self.cross = self.cross.saturating_add(count);
            return;
        }
        let column = (distance as usize).checked_sub(1);
        if let Some(column) = column.and_then(|index| self.columns.get_mut(index)) {
            *column = column.saturating_add(count);
        }
    }

    /// How much of it went through a root complex, in whole percent; 0 of nothing.
    pub(crate) fn cross_percent(&self) -> u64 {
        match self.cross.checked_mul(100) {
            Some(part) => part.checked_div(self.all).unwrap_or(0),
            // `all` is not less than `cross`, so a hundredth of it is not 0.
            None => self.cross.checked_div(self.all / 100).unwrap_or(0).min(100),
        }
    }
}
