/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The tracepoints, group nvidia_fs. `gpu` is domain << 32 | bus << 8 | devfn, 0 when not known;
 * `dev` as in the block layer's events. docs/admin.md has what they mean.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM nvidia_fs

#if !defined(NVFS_EVENTS_H) || defined(TRACE_HEADER_MULTI_READ)
#define NVFS_EVENTS_H

#include <linux/types.h>
#include <linux/kdev_t.h>
#include <linux/tracepoint.h>

#define NVFS_PCI	"%04llx:%02x:%02x.%x"
#define nvfs_pci(a)	(a) >> 32, (unsigned int)(a) >> 8 & 0xff, \
			(unsigned int)(a) >> 3 & 0x1f, (unsigned int)(a) & 7
#define nvfs_op(op)	__print_symbolic(op, { 0, "read" }, { 1, "write" })
#define nvfs_path(path)	__print_symbolic(path, { 0, "p2pdma" }, { 1, "callback" })

TRACE_EVENT(nvfs_map,
	TP_PROTO(u64 gpu, u64 va, u64 bytes, u64 shadow, int result),
	TP_ARGS(gpu, va, bytes, shadow, result),
	TP_STRUCT__entry(
		__field(u64, gpu)
		__field(u64, va)
		__field(u64, bytes)
		__field(u64, shadow)
		__field(int, result)
	),
	TP_fast_assign(
		__entry->gpu = gpu;
		__entry->va = va;
		__entry->bytes = bytes;
		__entry->shadow = shadow;
		__entry->result = result;
	),
	TP_printk("gpu=" NVFS_PCI " va=0x%llx bytes=%llu shadow=%llu result=%d",
		  nvfs_pci(__entry->gpu), __entry->va, __entry->bytes, __entry->shadow,
		  __entry->result)
);

TRACE_EVENT(nvfs_unmap,
	TP_PROTO(u64 gpu, u64 va, u64 bytes),
	TP_ARGS(gpu, va, bytes),
	TP_STRUCT__entry(
		__field(u64, gpu)
		__field(u64, va)
		__field(u64, bytes)
	),
	TP_fast_assign(
		__entry->gpu = gpu;
		__entry->va = va;
		__entry->bytes = bytes;
	),
	TP_printk("gpu=" NVFS_PCI " va=0x%llx bytes=%llu", nvfs_pci(__entry->gpu), __entry->va,
		  __entry->bytes)
);

TRACE_EVENT(nvfs_submit,
	TP_PROTO(u64 gpu, u32 dev, u32 op, u32 path, s64 offset, u64 bytes, bool sync),
	TP_ARGS(gpu, dev, op, path, offset, bytes, sync),
	TP_STRUCT__entry(
		__field(u64, gpu)
		__field(u32, dev)
		__field(u8, op)
		__field(u8, path)
		__field(u8, sync)
		__field(s64, offset)
		__field(u64, bytes)
	),
	TP_fast_assign(
		__entry->gpu = gpu;
		__entry->dev = dev;
		__entry->op = op;
		__entry->path = path;
		__entry->sync = sync;
		__entry->offset = offset;
		__entry->bytes = bytes;
	),
	TP_printk("gpu=" NVFS_PCI " dev=%u,%u op=%s path=%s offset=%lld bytes=%llu sync=%u",
		  nvfs_pci(__entry->gpu), MAJOR(__entry->dev), MINOR(__entry->dev),
		  nvfs_op(__entry->op), nvfs_path(__entry->path), __entry->offset,
		  __entry->bytes, __entry->sync)
);

TRACE_EVENT(nvfs_complete,
	TP_PROTO(u64 gpu, u32 dev, u32 op, u32 path, s64 offset, u64 bytes, s64 result,
		 u64 latency_us),
	TP_ARGS(gpu, dev, op, path, offset, bytes, result, latency_us),
	TP_STRUCT__entry(
		__field(u64, gpu)
		__field(u32, dev)
		__field(u8, op)
		__field(u8, path)
		__field(s64, offset)
		__field(u64, bytes)
		__field(s64, result)
		__field(u64, latency_us)
	),
	TP_fast_assign(
		__entry->gpu = gpu;
		__entry->dev = dev;
		__entry->op = op;
		__entry->path = path;
		__entry->offset = offset;
		__entry->bytes = bytes;
		__entry->result = result;
		__entry->latency_us = latency_us;
	),
	TP_printk("gpu=" NVFS_PCI " dev=%u,%u op=%s path=%s offset=%lld bytes=%llu result=%lld latency_us=%llu",
		  nvfs_pci(__entry->gpu), MAJOR(__entry->dev), MINOR(__entry->dev),
		  nvfs_op(__entry->op), nvfs_path(__entry->path), __entry->offset,
		  __entry->bytes, __entry->result, __entry->latency_us)
);

/* The reason is not terminated. */
TRACE_EVENT(nvfs_refuse,
	TP_PROTO(u64 gpu, u32 dev, u32 op, const char *reason, size_t len, int result),
	TP_ARGS(gpu, dev, op, reason, len, result),
	TP_STRUCT__entry(
		__field(u64, gpu)
		__field(u32, dev)
		__field(u8, op)
		__string_len(reason, reason, len)
		__field(int, result)
	),
	TP_fast_assign(
		__entry->gpu = gpu;
		__entry->dev = dev;
		__entry->op = op;
		__assign_str(reason);
		__entry->result = result;
	),
	TP_printk("gpu=" NVFS_PCI " dev=%u,%u op=%s reason=%s result=%d", nvfs_pci(__entry->gpu),
		  MAJOR(__entry->dev), MINOR(__entry->dev), nvfs_op(__entry->op),
		  __get_str(reason), __entry->result)
);

TRACE_EVENT(nvfs_dma_map,
	TP_PROTO(u64 gpu, u64 peer, u64 addr, u64 bytes),
	TP_ARGS(gpu, peer, addr, bytes),
	TP_STRUCT__entry(
		__field(u64, gpu)
		__field(u64, peer)
		__field(u64, addr)
		__field(u64, bytes)
	),
	TP_fast_assign(
		__entry->gpu = gpu;
		__entry->peer = peer;
		__entry->addr = addr;
		__entry->bytes = bytes;
	),
	TP_printk("gpu=" NVFS_PCI " peer=" NVFS_PCI " addr=0x%llx bytes=%llu",
		  nvfs_pci(__entry->gpu), nvfs_pci(__entry->peer), __entry->addr, __entry->bytes)
);

TRACE_EVENT(nvfs_dma_unmap,
	TP_PROTO(u64 gpu, u64 addr, u64 bytes),
	TP_ARGS(gpu, addr, bytes),
	TP_STRUCT__entry(
		__field(u64, gpu)
		__field(u64, addr)
		__field(u64, bytes)
	),
	TP_fast_assign(
		__entry->gpu = gpu;
		__entry->addr = addr;
		__entry->bytes = bytes;
	),
	TP_printk("gpu=" NVFS_PCI " addr=0x%llx bytes=%llu", nvfs_pci(__entry->gpu),
		  __entry->addr, __entry->bytes)
);

TRACE_EVENT(nvfs_free_callback,
	TP_PROTO(u64 gpu, u64 va, u64 bytes, u64 latency_us),
	TP_ARGS(gpu, va, bytes, latency_us),
	TP_STRUCT__entry(
		__field(u64, gpu)
		__field(u64, va)
		__field(u64, bytes)
		__field(u64, latency_us)
	),
	TP_fast_assign(
		__entry->gpu = gpu;
		__entry->va = va;
		__entry->bytes = bytes;
		__entry->latency_us = latency_us;
	),
	TP_printk("gpu=" NVFS_PCI " va=0x%llx bytes=%llu latency_us=%llu",
		  nvfs_pci(__entry->gpu), __entry->va, __entry->bytes, __entry->latency_us)
);

#endif /* NVFS_EVENTS_H */

#undef TRACE_INCLUDE_PATH
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_PATH .
#define TRACE_INCLUDE_FILE events
#include <trace/define_trace.h>
