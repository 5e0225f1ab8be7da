/* SPDX-License-Identifier: GPL-2.0 */
/* What bindgen reads; which of it becomes Rust is said in bindgen_parameters. */
#include <linux/blk-mq-dma.h>
#include <linux/proc_fs.h>
#include "../../include/nv_p2p.h"
#include "../../include/nvfs_dma_ops.h"
#include "../helpers/helpers.h"
#include "../helpers/events.h"
#include "../helpers/faults.h"
#include "../helpers/request.h"
#include "../helpers/topology.h"
#include "../helpers/shadow.h"
