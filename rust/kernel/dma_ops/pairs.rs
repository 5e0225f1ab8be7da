// SPDX-License-Identifier: GPL-2.0

//! The exports by which storage drivers take a table, and give it back. Contract sections 2.5 and 14.4.

use kernel::prelude::*;

/// What a pair takes.
pub(super) enum Kind {
    /// A `struct nvfs_dma_ops_v1`.
    V1,
    /// A `struct nvfs_dma_ops_v2`.
    V2,
}

/// A pair of exports.
///
/// # Invariants
///
/// A driver that exports these names for GPL modules has there an `int register(table)`, with a table
/// of this kind, and a `void unregister(void)`.
pub struct Pair {
    pub(super) register: &'static CStr,
    pub(super) unregister: &'static CStr,
    pub(super) kind: Kind,
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.register == other.register
    }
}

impl Eq for Pair {}

impl Pair {
    /// Where a table is taken.
    pub fn register(&self) -> &'static CStr {
        self.register
    }

    /// Where it is given back.
    pub fn unregister(&self) -> &'static CStr {
        self.unregister
    }
}

macro_rules! pairs {
    ($($name:ident: $kind:ident, $register:literal, $unregister:literal;)*) => { $(
        #[allow(missing_docs)]
        // INVARIANT: By the contract.
        pub static $name: Pair = Pair {
            register: $register,
            unregister: $unregister,
            kind: Kind::$kind,
        };
    )* };
}

pairs! {
    NVME_V2: V2, c"nvme_v2_register_nvfs_dma_ops", c"nvme_v2_unregister_nvfs_dma_ops";
    NVME_V1: V1, c"nvme_v1_register_nvfs_dma_ops", c"nvme_v1_unregister_nvfs_dma_ops";
    NVME_RDMA: V1, c"nvme_rdma_v1_register_nvfs_dma_ops", c"nvme_rdma_v1_unregister_nvfs_dma_ops";
    SFXV: V1, c"sfxv_v1_register_nvfs_dma_ops", c"sfxv_v1_unregister_nvfs_dma_ops";
    NVMESH: V1, c"nvmesh_v1_register_nvfs_dma_ops", c"nvmesh_v1_unregister_nvfs_dma_ops";
    LUSTRE: V1, c"lustre_v1_register_nvfs_dma_ops", c"lustre_v1_unregister_nvfs_dma_ops";
    BEEGFS: V1, c"beegfs_v1_register_nvfs_dma_ops", c"beegfs_v1_unregister_nvfs_dma_ops";
    IBM_SCALE: V1, c"ibm_scale_v1_register_nvfs_dma_ops", c"ibm_scale_v1_unregister_nvfs_dma_ops";
    RPCRDMA: V1, c"rpcrdma_register_nvfs_dma_ops", c"rpcrdma_unregister_nvfs_dma_ops";
    SCATEFS: V1, c"scatefs_register_nvfs_dma_ops", c"scatefs_unregister_nvfs_dma_ops";
    SCSI: V1, c"scsi_v1_register_dma_scsi_ops", c"scsi_v1_unregister_dma_scsi_ops";
}
