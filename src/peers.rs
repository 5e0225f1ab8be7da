// SPDX-License-Identifier: GPL-2.0

//! The GPUs of the system and their peers, the functions that do DMA to GPU memory; how far they
//! are from each other, and how often each did it. Contract sections 19.5 to 19.7, and 20.
//!
//! A [`Snapshot`] has it all. It never changes: another one takes its place when functions come or
//! go, and when somebody reads the files. It is read in any context.

use crate::{
    driver::Driver,
    topology::{
        self,
        Affinity,
        Bridge, //
    },
};
use kernel::{
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        new_mutex,
        Arc,
        Mutex, //
    },
};
use nvfs_kernel::{
    pci::{
        self,
        Address,
        Bus,
        Function,
        Present, //
    },
    pci_events,
    percpu::Counters,
    published::Published, //
};

/// A GPU that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gpu {
    /// Its number: small, and the same for this address as long as the module is loaded.
    pub(crate) index: u32,
    pub(crate) address: Address,
    /// First and last byte of each memory BAR; 1 and 0 where there is none.
    bars: [(u64, u64); 6],
}

/// A peer that was found.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Peer {
    address: Address,
    class: u32,
    lanes: u32,
    generation: u32,
    node: Option<u32>,
}

/// DMA runs of one pair.
type Count = Arc<Counters<1>>;

/// All GPUs, peers and pairs of one moment.
///
/// `distances` and `counts` have an entry for each pair, all of the first GPU first.
struct Snapshot {
    gpus: KVVec<Gpu>,
    peers: KVVec<Peer>,
    distances: KVVec<u32>,
    counts: KVVec<Count>,
}

impl Snapshot {
    fn empty() -> Self {
        Self {
            gpus: KVVec::new(),
            peers: KVVec::new(),
            distances: KVVec::new(),
            counts: KVVec::new(),
        }
    }

    /// What there is now, still without counts. `known` is where GPUs have their numbers from.
    /// May sleep.
    fn scan(known: &mut KVVec<Address>) -> Result<Self> {
        let (gpus, peers) = pci::look(|bus| {
            let gpus = Place::all(bus, &topology::GPU_CLASSES, topology::is_gpu)?;
            let peers = Place::all(bus, &topology::PEER_CLASSES, |_, _| true)?;
            Ok::<_, Error>((gpus, peers))
        })?;
        let mut new = Self::empty();
        for place in &gpus {
            new.gpus.push(place.gpu(known)?, GFP_KERNEL)?;
            for peer in &peers {
                new.distances.push(place.distance_to(peer), GFP_KERNEL)?;
            }
        }
        for place in &peers {
            new.peers.push(place.peer(), GFP_KERNEL)?;
        }
        Ok(new)
    }

    /// Whether all is as in another one.
    fn is_like(&self, other: &Self) -> bool {
        self.gpus[..] == other.gpus[..]
            && self.peers[..] == other.peers[..]
            && self.distances[..] == other.distances[..]
    }

    /// Gives each pair its count: that of `old`, or a new one. May sleep.
    fn count_on(&mut self, old: &Self) -> Result {
        for gpu in &self.gpus {
            for peer in &self.peers {
                let before = old.pair(gpu.index, peer.address);
                let count = match before.and_then(|pair| old.counts.get(pair)) {
                    Some(count) => count.clone(),
                    None => Arc::new(Counters::new()?, GFP_KERNEL)?,
                };
                self.counts.push(count, GFP_KERNEL)?;
            }
        }
        Ok(())
    }

    /// Where a pair is. Callable in any context.
    fn pair(&self, gpu: u32, peer: Address) -> Option<usize> {
        let gpu = self.gpus.iter().position(|known| known.index == gpu)?;
        let peer = self.peers.iter().position(|known| known.address == peer)?;
        gpu.checked_mul(self.peers.len())?.checked_add(peer)
    }

    /// Calls `f` for each pair of a GPU with peer, distance and count.
    fn each_peer(&self, gpu: usize, mut f: impl FnMut(&Peer, u32, u64)) {
        let first = gpu.saturating_mul(self.peers.len());
        let pairs = self.distances.iter().zip(&self.counts).skip(first);
        for (peer, (distance, count)) in self.peers.iter().zip(pairs) {
            f(peer, *distance, count.sum(0));
        }
    }

    /// DMA counts of a GPU by distance.
    fn affinity(&self, gpu: usize) -> Affinity {
        let mut affinity = Affinity::new();
        self.each_peer(gpu, |_, distance, count| affinity.add(distance, count));
        affinity
    }
}

/// A function, and what there was to know of it when it was on the bus.
struct Place {
    function: Function,
    bridges: Option<KVec<Bridge>>,
    node: Option<u32>,
    link_status: u16,
}

impl Place {
    /// All functions of these classes, one class after the other, for which `is_one` says so of
    /// vendor and class. May sleep.
    fn all(bus: &Bus, classes: &[u32], is_one: impl Fn(u16, u32) -> bool) -> Result<KVVec<Self>> {
        let mut places = KVVec::new();
        for class in classes {
            bus.try_each(|function| {
                if function.class() == *class && is_one(function.vendor(), *class) {
                    places.push(Self::new(function)?, GFP_KERNEL)?;
                }
                Ok(())
            })?;
        }
        Ok(places)
    }

    fn new(function: &Present<'_>) -> Result<Self> {
        let bridges = match function.upstream()? {
            None => None,
            Some(upstream) => {
                let mut bridges = KVec::with_capacity(upstream.len(), GFP_KERNEL)?;
                for bridge in &upstream {
                    let bridge = Bridge {
                        id: bridge.address().to_pdevinfo(),
                        acs: acs_is_on(bridge),
                    };
                    bridges.push(bridge, GFP_KERNEL)?;
                }
                Some(bridges)
            }
        };
        Ok(Self {
            function: Function::clone(function),
            bridges,
            node: function.node(),
            link_status: function.link_status(),
        })
    }

    fn distance_to(&self, peer: &Self) -> u32 {
        topology::distance(
            self.bridges.as_deref(),
            peer.bridges.as_deref(),
            topology::is_local(self.node, peer.node, pci::node_distance),
        )
    }

    fn gpu(&self, known: &mut KVVec<Address>) -> Result<Gpu> {
        let address = self.function.address();
        let index = match known.iter().position(|other| *other == address) {
            Some(index) => index,
            None => {
                known.push(address, GFP_KERNEL)?;
                known.len() - 1
            }
        };
        let mut bars = [(1, 0); 6];
        for (slot, bar) in bars.iter_mut().zip(self.function.bars()) {
            *slot = (bar.start, bar.last());
        }
        Ok(Gpu {
            index: u32::try_from(index).map_err(|_| ENOMEM)?,
            address,
            bars,
        })
    }

    fn peer(&self) -> Peer {
        let (lanes, generation) = topology::link(self.link_status);
        Peer {
            address: self.function.address(),
            class: self.function.class(),
            lanes,
            generation,
            node: self.node,
        }
    }
}

fn acs_is_on(bridge: &Present<'_>) -> bool {
    bridge
        .acs()
        .is_some_and(|(capabilities, control)| topology::acs_is_on(capabilities, control))
}

/// GPUs and peers, now and from now on.
#[pin_data]
pub(crate) struct Peers {
    /// How often functions came or went, and one more.
    events: Atomic<u64>,
    /// That, when the last good scan began.
    scanned: Atomic<u64>,
    now: Published<Snapshot>,
    #[pin]
    last: Mutex<Last>,
}

/// The last scan, for those who may sleep.
struct Last {
    snapshot: Arc<Snapshot>,
    /// Addresses of all GPUs that ever were, by their numbers.
    known: KVVec<Address>,
}

impl Peers {
    /// Nothing is known yet; the first who asks scans. May sleep. Fails with `ENOMEM`.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        let make = || Arc::new(Snapshot::empty(), GFP_KERNEL);
        pin_init::pin_init_scope(move || {
            let snapshot = make()?;
            Ok(try_pin_init!(Self {
                events: Atomic::new(1),
                scanned: Atomic::new(0),
                now: Published::new(snapshot.clone()),
                last <- new_mutex!(Last {
                    snapshot,
                    known: KVVec::new(),
                }),
            }? Error))
        })
    }

    /// Scans. May sleep. When memory is short, the last scan stays, until somebody asks again.
    fn scan(&self) -> Arc<Snapshot> {
        self.scan_into(&mut self.last.lock())
    }

    fn scan_into(&self, last: &mut Last) -> Arc<Snapshot> {
        let begun = self.events.load(Acquire);
        let scanned = Snapshot::scan(&mut last.known).and_then(|mut new| {
            if new.is_like(&last.snapshot) {
                return Ok(None);
            }
            new.count_on(&last.snapshot)?;
            Ok(Some(Arc::new(new, GFP_KERNEL)?))
        });
        match scanned {
            Ok(Some(new)) => {
                last.snapshot = new.clone();
                self.now.replace(new);
                self.scanned.store(begun, Release);
            }
            Ok(None) => self.scanned.store(begun, Release),
            Err(_) => (),
        }
        last.snapshot.clone()
    }

    /// Whether nothing came or went since the last scan began, which is over.
    fn is_settled(&self) -> bool {
        self.scanned.load(Acquire) == self.events.load(Acquire)
    }

    /// Scans unless what is known is good; waits for a scan that is under way. May sleep.
    fn settle(&self) {
        if self.is_settled() {
            return;
        }
        let mut last = self.last.lock();
        if !self.is_settled() {
            self.scan_into(&mut last);
        }
    }

    /// The GPU that has a physical address or, if no GPU's BAR has it, that the user named. May
    /// sleep.
    pub(crate) fn gpu_of(&self, phys: Option<u64>, pdevinfo: u64) -> Option<Gpu> {
        self.settle();
        let named = Address::from_pdevinfo(pdevinfo);
        self.now.read(|now| {
            let has = |(first, last): &(u64, u64)| phys.is_some_and(|p| *first <= p && p <= *last);
            now.gpus
                .iter()
                .find(|gpu| gpu.bars.iter().any(has))
                .or_else(|| now.gpus.iter().find(|gpu| Some(gpu.address) == named))
                .copied()
        })
    }

    /// The rank of a peer for a GPU, smaller is better; `u32::MAX` when one is not known. Callable
    /// in any context. Contract section 17.3.
    pub(crate) fn priority(&self, gpu: u32, peer: Address) -> u32 {
        self.now.read(|now| {
            let rank = || {
                let pair = now.pair(gpu, peer)?;
                let peer = now.peers.get(pair % now.peers.len())?;
                let distance = *now.distances.get(pair)?;
                Some(topology::rank(distance, peer.lanes, peer.generation))
            };
            rank().unwrap_or(u32::MAX)
        })
    }

    /// Counts DMA runs between a GPU and a peer, if both are known. Callable in any context.
    pub(crate) fn count(&self, gpu: u32, peer: Address, runs: u64) {
        self.now.read(|now| {
            if let Some(count) = now.pair(gpu, peer).and_then(|pair| now.counts.get(pair)) {
                count.add(0, runs);
            }
        });
    }

    /// All counts back to zero. Callable in any context.
    pub(crate) fn reset(&self) {
        self.now
            .read(|now| now.counts.iter().for_each(|count| count.clear(0)));
    }

    /// How much of a GPU's DMA went through a root complex, in percent. Callable in any context.
    pub(crate) fn cross_percent(&self, gpu: Option<Address>) -> u64 {
        self.now.read(|now| {
            let at = now.gpus.iter().position(|known| Some(known.address) == gpu);
            at.map_or(0, |at| now.affinity(at).cross_percent())
        })
    }

    /// Writes `peer_distance`. May sleep.
    pub(crate) fn show_distances(&self, m: &SeqFile) {
        seq_print!(
            m,
            "gpu\t\tpeer\t\tpeerrank\tp2pdist\tlink\tgen\tnuma\tnp2p\tclass\n"
        );
        let now = self.scan();
        for (at, gpu) in now.gpus.iter().enumerate() {
            now.each_peer(at, |peer, distance, count| {
                seq_print!(
                    m,
                    "{} \t{} \t{:#010x}\t{:#06x}\t{:#04x}\t{:#04x}\t{:#04x}\t{}\t{}\n",
                    gpu.address,
                    peer.address,
                    topology::rank(distance, peer.lanes, peer.generation),
                    distance & 0xffff,
                    peer.lanes,
                    peer.generation,
                    peer.node.unwrap_or(u32::MAX),
                    count,
                    topology::class_name(peer.class)
                );
            });
        }
    }

    /// Writes `peer_affinity`, as it is when DMA is counted. May sleep.
    pub(crate) fn show_affinity(&self, m: &SeqFile) {
        seq_print!(m, "GPU P2P DMA distribution based on pci-distance\n\n");
        seq_print!(m, "(last column indicates p2p via root complex)\n");
        let now = self.scan();
        for (at, gpu) in now.gpus.iter().enumerate() {
            let affinity = now.affinity(at);
            seq_print!(m, "GPU :{} :", gpu.address);
            for count in affinity.columns {
                seq_print!(m, "{} ", count);
            }
            seq_print!(m, "{}\n", affinity.cross);
        }
    }
}

impl pci_events::Follow for Driver {
    fn notice(&self) {
        self.peers.events.fetch_add(1, Release);
    }

    fn follow(&self) {
        self.peers.settle();
    }
}

/// Writes `bridges`: those with ACS on, now. May sleep.
pub(crate) fn show_bridges(m: &SeqFile) {
    let show = |function: &Present<'_>| {
        if function.class() == topology::BRIDGE && acs_is_on(function) {
            seq_print!(m, "{}\n", function.address());
        }
        None::<()>
    };
    pci::look(|bus| bus.find_map(show));
}
