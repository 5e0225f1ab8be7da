// SPDX-License-Identifier: GPL-2.0

//! What storage drivers with hooks see of a buffer: contract sections 15 to 17.

use super::{
    state::Word,
    Buffer,
    DRIVER,
    SHADOWS, //
};
use crate::{
    counters::Total,
    params,
    stats::Counter, //
};
use nvfs_kernel::{
    dma_ops::{
        self,
        Run, //
    },
    pci::Function,
    shadow,
    trace, //
};

impl dma_ops::Target for Buffer {
    fn space() -> &'static shadow::Space<Self> {
        &SHADOWS
    }

    fn hold(&self) -> bool {
        let taken = self.life.change(Word::begin_segment).is_ok();
        if taken {
            self.driver.totals.count(Total::Segments);
        }
        taken
    }

    fn release(&self, address: u64, len: usize) -> bool {
        let taken = self.life.end_segment();
        if taken {
            self.driver.totals.count(Total::SegmentsBack);
            trace::dma_unmap(|| (self.gpu_number(), address, len as u64));
        } else {
            self.driver.stats.count(Counter::DmaRef);
        }
        taken
    }

    fn bus(&self, at: usize, len: usize, peer: &Function) -> Option<Run> {
        let binding = self.binding.as_ref()?;
        binding.run(at, len, binding.pin.addresses(peer)?)
    }

    fn begin(&self, at: usize, len: usize, peer: &Function) -> Option<Run> {
        let binding = self.binding.as_ref()?;
        let run = binding.run(at, len, binding.pin.addresses(peer)?)?;
        binding.window.mark(at, run.len);
        Some(run)
    }

    fn physical(&self, at: usize, len: usize) -> Option<Run> {
        let binding = self.binding.as_ref()?;
        if !self.life.word().is_busy() {
            return None;
        }
        binding.run(at, len, &binding.pages)
    }

    fn started(&self, at: usize, len: usize) {
        if let Some(binding) = self.binding.as_ref() {
            binding.window.mark(at, len);
        }
    }

    fn failed(&self, at: usize, len: usize) {
        if let Some(binding) = self.binding.as_ref() {
            binding.window.refuse(at, len);
        }
    }

    fn handed_out(&self, peer: &Function, address: u64, len: usize) {
        trace::dma_map(|| {
            let peer = peer.address().to_pdevinfo();
            (self.gpu_number(), peer, address, len as u64)
        });
        if params::PEER_STATS.get() == 0 {
            return;
        }
        if let Some(gpu) = self.binding.as_ref().and_then(|binding| binding.gpu) {
            self.driver.peers.count(gpu.index, peer.address(), 1);
        }
    }

    fn is_under_way(&self, at: usize, len: usize) -> bool {
        self.life.word().is_busy()
            && self
                .binding
                .as_ref()
                .is_some_and(|binding| binding.window.locate(at, len).is_some())
    }

    fn remote(&self) -> Option<[u8; dma_ops::REMOTE_LEN]> {
        let binding = self.binding.as_ref()?;
        let (start, len) = binding.window.chunk();
        self.rdma
            .get()
            .at(binding.range.pinned_start().checked_add(start)?, len)
    }

    fn device_index(&self) -> Option<u32> {
        Some(self.binding.as_ref()?.gpu?.index)
    }

    fn priority(peer: &Function, index: u32) -> u32 {
        DRIVER
            .read(|driver| driver.peers.priority(index, peer.address()))
            .unwrap_or(u32::MAX)
    }

    fn shares(&self) -> &dma_ops::Shares<Self> {
        &self.shares
    }

    fn fault(&self, fault: dma_ops::Fault) {
        match fault {
            dma_ops::Fault::Mixed => self.driver.stats.count(Counter::CpuGpuPages),
            dma_ops::Fault::ListFull => self.driver.stats.count(Counter::SgExt),
            dma_ops::Fault::NotTaken => self.driver.stats.count(Counter::DmaRef),
            dma_ops::Fault::NoAddress => (),
        }
    }
}
