// SPDX-License-Identifier: GPL-2.0

//! `/proc/driver/nvidia-fs`: one type a file; contract section 19.

use crate::{
    driver::Driver,
    params,
    path,
    peers,
    stats::Counter, //
};
use kernel::{
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    sync::Arc, //
};
use nvfs_kernel::{
    file,
    procfs::{
        Dir,
        Show, //
    },
};

/// Makes the directory and its files. May sleep.
pub(crate) fn create(driver: &Arc<Driver>) -> Result<Dir<Driver>> {
    let dir = Dir::new(c"driver/nvidia-fs", driver.clone())?;
    dir.file::<Version>(c"version")?;
    dir.file::<DevCount>(c"devcount")?;
    dir.file::<Modules>(c"modules")?;
    dir.file::<Bridges>(c"bridges")?;
    dir.file::<PeerDistance>(c"peer_distance")?;
    dir.file::<PeerAffinity>(c"peer_affinity")?;
    dir.file::<Stats>(c"stats")?;
    dir.file::<Paths>(c"paths")?;
    dir.file::<Counters>(c"counters")?;
    Ok(dir)
}

/// `version`: the interface's major and minor, which the user library compares.
struct Version;

impl Show<Driver> for Version {
    fn show(_: &Driver, m: &SeqFile) -> Result {
        seq_print!(m, "version: 2.28\n");
        Ok(())
    }
}

/// `devcount`: the number of device nodes.
struct DevCount;

impl Show<Driver> for DevCount {
    fn show(driver: &Driver, m: &SeqFile) -> Result {
        seq_print!(m, "{}\n", driver.nodes);
        Ok(())
    }
}

/// `modules`: the storage drivers that GPU memory can be used with.
struct Modules;

impl Show<Driver> for Modules {
    fn show(driver: &Driver, m: &SeqFile) -> Result {
        driver.vendors.show(m, path::nvme_available());
        Ok(())
    }
}

/// `bridges`: those that have ACS on.
struct Bridges;

impl Show<Driver> for Bridges {
    fn show(_: &Driver, m: &SeqFile) -> Result {
        peers::show_bridges(m);
        Ok(())
    }
}

/// `peer_distance`: how far each peer is from each GPU.
struct PeerDistance;

impl Show<Driver> for PeerDistance {
    fn show(driver: &Driver, m: &SeqFile) -> Result {
        driver.peers.show_distances(m);
        Ok(())
    }
}

/// `peer_affinity`: DMA of each GPU by distance; empty unless it is counted.
struct PeerAffinity;

impl Show<Driver> for PeerAffinity {
    fn show(driver: &Driver, m: &SeqFile) -> Result {
        if params::PEER_STATS.get() != 0 {
            driver.peers.show_affinity(m);
        }
        Ok(())
    }
}

/// `paths`: which way data would take between each GPU and each drive, and why not.
struct Paths;

impl Show<Driver> for Paths {
    fn show(driver: &Driver, m: &SeqFile) -> Result {
        path::show_paths(&driver.vendors, m);
        Ok(())
    }
}

/// `counters`: what has happened since the module was loaded, for monitoring.
struct Counters;

impl Show<Driver> for Counters {
    fn show(driver: &Driver, m: &SeqFile) -> Result {
        driver.totals.show(m);
        Ok(())
    }
}

/// `stats`.
struct Stats;

impl Show<Driver> for Stats {
    fn show(driver: &Driver, m: &SeqFile) -> Result {
        show_heading(m);
        show_buffers(driver, m);
        show_transfers(driver, m);
        show_maps(driver, m);
        driver.stats.each_gpu(|gpu| {
            seq_print!(
                m,
                "GPU {}  uuid:{} : Registered_MiB={} Cache_MiB={} max_pinned_MiB={} ",
                gpu.address.unwrap_or_default(),
                Uuid(&gpu.uuid),
                gpu.registered >> 20,
                gpu.cache >> 20,
                gpu.max >> 20
            );
            if params::PEER_STATS.get() != 0 {
                let cross = driver.peers.cross_percent(gpu.address);
                seq_print!(m, "cross_root_port(%)={}", cross);
            }
            seq_print!(m, "\n");
        });
        Ok(())
    }

    fn written(driver: &Driver) -> Result {
        driver.stats.reset();
        driver.peers.reset();
        Ok(())
    }
}

fn enabled(value: u32) -> &'static str {
    if value != 0 {
        "Enabled"
    } else {
        "Disabled"
    }
}

/// Lines 1 to 7.
fn show_heading(m: &SeqFile) {
    seq_print!(m, "GDS Version: 1.17.1.22 \n");
    seq_print!(m, "NVFS statistics(ver: 4.0)\n");
    seq_print!(m, "NVFS Driver(version: 2.28.4)\n");
    let peer_memory: Result<[u8; 1]> =
        file::read_start(c"/sys/kernel/mm/memory_peers/nv_mem/version");
    let supported = if peer_memory.is_ok() { "True" } else { "False" };
    seq_print!(m, "Mellanox PeerDirect Supported: {}\n", supported);
    let io = enabled(params::RW_STATS.get());
    let peer = enabled(params::PEER_STATS.get());
    seq_print!(m, "IO stats: {}, peer IO stats: {}\n", io, peer);
    let level = if params::DEBUG.get() != 0 {
        "debug"
    } else if params::INFO.get() != 0 {
        "info"
    } else {
        "warn"
    };
    seq_print!(m, "Logging level: {}\n\n", level);
}

/// Lines 8 and 9.
fn show_buffers(driver: &Driver, m: &SeqFile) {
    let shadow = driver.stats.get(Counter::ShadowBytes) >> 20;
    seq_print!(m, "Active Shadow-Buffer (MiB): {}\n", shadow);
    let processes = driver.opens() / driver.nodes.max(1);
    seq_print!(m, "Active Process: {}\n", processes);
}

/// Lines 10 to 15.
fn show_transfers(driver: &Driver, m: &SeqFile) {
    let get = |counter| driver.stats.get(counter);
    let detailed = params::RW_STATS.get() != 0;
    let [(read_rate, read_micros), (write_rate, write_micros), (_, batch_micros)] =
        driver.stats.rates();
    let (read_err, read_state) = (get(Counter::ReadsErr), get(Counter::ReadsStateErr));
    let (write_err, write_state) = (get(Counter::WritesErr), get(Counter::WritesStateErr));
    if detailed {
        seq_print!(
            m,
            "Batches\t\t\t\t: n={} ok={} err={} Avg-Submit-Latency(usec)={}\n",
            get(Counter::Batches),
            get(Counter::BatchesOk),
            get(Counter::BatchesErr),
            batch_micros
        );
        seq_print!(
            m,
            "Reads\t\t\t\t: n={} ok={} err={} readMiB={} io_state_err={}\n",
            get(Counter::Reads),
            get(Counter::ReadsOk),
            read_err,
            get(Counter::ReadBytes) >> 20,
            read_state
        );
        seq_print!(
            m,
            "Reads\t\t\t\t: Bandwidth(MiB/s)={} Avg-Latency(usec)={}\n",
            read_rate,
            read_micros
        );
    } else {
        seq_print!(
            m,
            "Reads\t\t\t\t: err={} io_state_err={}\n",
            read_err,
            read_state
        );
    }
    seq_print!(
        m,
        "Sparse Reads\t\t        : n={} io={} holes={} pages={} \n",
        get(Counter::SparseReads),
        get(Counter::SparseIo),
        get(Counter::SparseHoles),
        get(Counter::SparsePages)
    );
    if detailed {
        seq_print!(
            m,
            "Writes\t\t\t\t: n={} ok={} err={} writeMiB={} io_state_err={}",
            get(Counter::Writes),
            get(Counter::WritesOk),
            write_err,
            get(Counter::WriteBytes) >> 20,
            write_state
        );
    } else {
        seq_print!(
            m,
            "Writes\t\t\t\t: err={} io_state_err={}",
            write_err,
            write_state
        );
    }
    seq_print!(
        m,
        " pg-cache={} pg-cache-fail={} pg-cache-eio={}\n",
        get(Counter::PageCache),
        get(Counter::PageCacheFail),
        get(Counter::PageCacheGaveUp)
    );
    if detailed {
        seq_print!(
            m,
            "Writes\t\t\t\t: Bandwidth(MiB/s)={} Avg-Latency(usec)={}\n",
            write_rate,
            write_micros
        );
    }
}

/// Lines 16 to 19.
fn show_maps(driver: &Driver, m: &SeqFile) {
    let get = |counter| driver.stats.get(counter);
    seq_print!(
        m,
        "Mmap\t\t\t\t: n={} ok={} err={} munmap={}\n",
        get(Counter::Mmaps),
        get(Counter::MmapsOk),
        get(Counter::MmapsErr),
        get(Counter::Munmaps)
    );
    seq_print!(
        m,
        "Bar1-map\t\t\t: n={} ok={} err={} free={} callbacks={} active={} delay-frees=0\n",
        get(Counter::Maps),
        get(Counter::MapsOk),
        get(Counter::MapsErr),
        get(Counter::MapsFreed),
        get(Counter::Callbacks),
        get(Counter::ActiveMaps)
    );
    seq_print!(
        m,
        "Error\t\t\t\t: cpu-gpu-pages={} sg-ext={} dma-map={} dma-ref={}\n",
        get(Counter::CpuGpuPages),
        get(Counter::SgExt),
        get(Counter::DmaMap),
        get(Counter::DmaRef)
    );
    seq_print!(
        m,
        "Ops\t\t\t\t: Read={} Write={} BatchIO={}\n",
        get(Counter::ReadOps),
        get(Counter::WriteOps),
        get(Counter::BatchOps)
    );
}

/// A GPU's identity in its groups.
struct Uuid<'a>(&'a [u8; 16]);

impl kernel::fmt::Display for Uuid<'_> {
    fn fmt(&self, f: &mut kernel::fmt::Formatter<'_>) -> kernel::fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if [4, 6, 8, 10].contains(&index) {
                write!(f, "-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}
