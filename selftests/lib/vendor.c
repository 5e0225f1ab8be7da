// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tap.h"
#include "vendor.h"

uint64_t vendor_pci(const char *address)
{
	unsigned int domain, bus, device, function;

	if (sscanf(address, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4)
		tap_bail("no PCI address: %s", address);
	return (uint64_t)domain << 32 | bus << 8 | device << 3 | function;
}

void vendor_open(struct vendor *v, enum fake_storage_table table, const char *disk,
		 const char *pci_address)
{
	memset(v, 0, sizeof(*v));
	v->table = table;
	v->dev = vendor_pci(pci_address);
	if (gpu_open(&v->gpu, 0) || gpu_info(&v->gpu, &v->info))
		tap_bail("no GPU");
	v->node = nvfs_open(0, O_RDWR);
	v->control = storage_open();
	v->disk = open(disk, O_RDWR | O_DIRECT | O_CLOEXEC);
	v->cpu = mmap(NULL, VENDOR_WINDOW, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (v->node < 0 || v->control < 0 || v->disk < 0 || v->cpu == MAP_FAILED)
		tap_bail("node %d, fake_storage %d, disk %d", v->node, v->control, v->disk);
	if (storage_set("table", table))
		tap_bail("no parameter `table`");
}

int vendor_buffer(struct vendor *v, uint64_t flags)
{
	uint64_t va;
	int ret = gpu_alloc(&v->gpu, VENDOR_GPU, flags, &va);

	if (ret)
		return ret;
	return nvfs_register(&v->buf, v->node, va, VENDOR_GPU, VENDOR_WINDOW, v->info.pdevinfo);
}

void vendor_forget(struct vendor *v)
{
	nvfs_unregister(&v->buf);
	gpu_free(&v->gpu, v->buf.gpu_va);
}

static void *read_it(void *data)
{
	struct vendor *v = data;

	v->result = v->write ? nvfs_write(&v->buf, v->disk, 0, v->size, v->at) :
			       nvfs_read(&v->buf, v->disk, 0, v->size, v->at);
	return NULL;
}

void vendor_beside(struct vendor *other, const struct vendor *v)
{
	*other = *v;
	memset(&other->buf, 0, sizeof(other->buf));
	if (gpu_open(&other->gpu, 1) || gpu_info(&other->gpu, &other->info))
		tap_bail("no second GPU");
}

static void start(struct vendor *v, uint64_t at, uint64_t size, unsigned int held)
{
	int ret;

	v->at = at;
	v->size = size;
	v->result = 0;
	ret = -pthread_create(&v->thread, NULL, read_it, v);
	ret = ret ?: storage_wait_held(v->control, held);
	if (ret)
		tap_bail("no read is held: %d, the read's result %zd", ret, v->result);
}

void vendor_start(struct vendor *v, uint64_t at, uint64_t size)
{
	int ret = storage_hold(v->control, FAKE_STORAGE_UNMAPPED);

	if (ret)
		tap_bail("reads cannot be held: %d", ret);
	start(v, at, size, 1);
}

void vendor_start_beside(struct vendor *v, uint64_t at, uint64_t size)
{
	start(v, at, size, 2);
}

ssize_t vendor_end(struct vendor *v)
{
	storage_hold(v->control, FAKE_STORAGE_RUN);
	pthread_join(v->thread, NULL);
	return v->result;
}

/* The buffer's GPU memory begins with a GPU page. */
char *vendor_shadow(struct vendor *v)
{
	return v->buf.shadow + v->at % NVFS_GPU_PAGE_SIZE;
}

int vendor_build(struct vendor *v, enum fake_storage_op op, unsigned int flags,
		 const struct fake_storage_piece *pieces, unsigned int n)
{
	v->build.op = op;
	v->build.flags = flags;
	v->build.nr = n;
	return storage_build(v->control, &v->build, pieces);
}

int vendor_build_one(struct vendor *v, unsigned int flags, uint64_t offset, uint64_t len)
{
	struct fake_storage_piece piece = { (uintptr_t)vendor_shadow(v) + offset, len };

	memset(&v->build, 0, sizeof(v->build));
	return vendor_build(v, FAKE_STORAGE_READ, flags, &piece, 1);
}

static int64_t call(struct vendor *v, enum fake_storage_function function, int nents,
		    uint64_t dev, unsigned int without, bool irq)
{
	v->call.table = v->table;
	v->call.function = function;
	v->call.nents = nents;
	v->call.dev = dev;
	v->call.without = without;
	v->call.irq = irq;
	return storage_call(v->control, &v->call) ? INT64_MIN : v->call.result;
}

int64_t vendor_call(struct vendor *v, enum fake_storage_function function, int nents)
{
	return call(v, function, nents, v->dev, 0, false);
}

int64_t vendor_call_without(struct vendor *v, enum fake_storage_function function, int nents,
			    unsigned int without)
{
	return call(v, function, nents, v->dev, without, false);
}

int64_t vendor_call_for(struct vendor *v, enum fake_storage_function function, int nents,
			uint64_t dev)
{
	return call(v, function, nents, dev, 0, false);
}

int64_t vendor_call_in_irq(struct vendor *v, enum fake_storage_function function, int nents)
{
	return call(v, function, nents, v->dev, 0, true);
}

uint64_t vendor_bus(struct vendor *v, uint64_t offset)
{
	uint64_t at = 0;

	/* There is no IOMMU: the bus address is the physical one. */
	if (gpu_where(&v->gpu, v->buf.gpu_va + v->at + offset, &at, NULL))
		return 0;
	return v->info.bar_phys + at;
}

bool vendor_segments_right(struct vendor *v, uint64_t offset, uint64_t len)
{
	uint64_t done = 0;
	unsigned int i;

	for (i = 0; i < v->call.nr; i++) {
		const struct fake_storage_segment *segment = &v->call.segment[i];
		uint64_t in;

		for (in = 0; in < segment->len; in += 4096) {
			uint64_t want = vendor_bus(v, offset + done + in);

			if (segment->addr + in == want)
				continue;
			tap_diag("segment %u, byte %llu: %#llx, want %#llx", i,
				 (unsigned long long)in, (unsigned long long)(segment->addr + in),
				 (unsigned long long)want);
			return false;
		}
		done += segment->len;
	}
	if (done != len)
		tap_diag("%llu bytes, want %llu", (unsigned long long)done,
			 (unsigned long long)len);
	return done == len;
}
