/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Short ways to say what libcufile says to /dev/nvidia-fs<N>.
 *
 * Functions that can fail return a negative errno; where the contract hides the reason in
 * `ioctl_return`, that reason. No function prints or exits.
 */
#ifndef NVFS_H
#define NVFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "../../include/nvfs_ioctl.h"

#define KIB			1024UL
#define MIB			(1024UL * KIB)

#define NVFS_PROC		"/proc/driver/nvidia-fs/"
#define NVFS_PARAMETERS		"/sys/module/nvidia_fs/parameters/"
#define NVFS_WAIT_SECONDS	120

/* One shadow buffer, its meta block, and the GPU range that MAP binds to it. */
struct nvfs_buffer {
	int node;		/* open file that all its requests go through */
	char *shadow;
	size_t window;		/* length of the shadow buffer */
	struct nvfs_meta *meta;
	uint64_t gpu_va;
	int64_t gpu_size;
	uint64_t pdevinfo;
	uint16_t is_bounce_buffer;
	uint64_t fence;		/* value of the last asynchronous request */
};

/* nvfs_has_compat: whether the kernel runs 32-bit programs. */
bool nvfs_has_compat(void);

/* nvfs_open: opens /dev/nvidia-fs<n>. */
int nvfs_open(unsigned int n, int flags);

/* nvfs_mmap: a new shadow buffer; NULL and errno on failure. */
void *nvfs_mmap(int node, size_t length);

/* nvfs_shadow: gives *buf a shadow buffer and a meta block, all else in it 0. */
int nvfs_shadow(struct nvfs_buffer *buf, int node, size_t window);

/* nvfs_map: MAP, with what is in *buf. */
int nvfs_map(struct nvfs_buffer *buf);

/* nvfs_register: nvfs_shadow and nvfs_map in one. On failure nothing is left. */
int nvfs_register(struct nvfs_buffer *buf, int node, uint64_t gpu_va, int64_t gpu_size,
		  size_t window, uint64_t pdevinfo);

/* nvfs_unregister: unmaps shadow buffer and meta block; harmless when done before. */
void nvfs_unregister(struct nvfs_buffer *buf);

/* The arguments of MAP, and of a synchronous READ or WRITE; the rest of the union is 0. */
union nvfs_ioctl_arg nvfs_map_arg(const struct nvfs_buffer *buf);
union nvfs_ioctl_arg nvfs_io_arg(const struct nvfs_buffer *buf, int fd, int64_t offset,
				 uint64_t size, uint64_t devptroff);

/* nvfs_ioctl: the bare request. Returns 0 or the negative errno of the system call. */
int nvfs_ioctl(int node, unsigned long request, void *arg);

/*
 * nvfs_request: MAP, READ or WRITE. Returns 0 for MAP and `ioctl_return` for the others, or the
 * reason of a failure. -EPROTO: errno was not EPERM or the reason no negative errno.
 */
ssize_t nvfs_request(int node, unsigned long request, union nvfs_ioctl_arg *arg);

/* Synchronous I/O. */
ssize_t nvfs_read(const struct nvfs_buffer *buf, int fd, int64_t offset, uint64_t size,
		  uint64_t devptroff);
ssize_t nvfs_write(const struct nvfs_buffer *buf, int fd, int64_t offset, uint64_t size,
		   uint64_t devptroff);

/*
 * nvfs_submit: asynchronous NVFS_IOCTL_READ or NVFS_IOCTL_WRITE with the next fence value, which
 * is then in buf->fence. Returns `ioctl_return`: 0 when queued.
 */
ssize_t nvfs_submit(struct nvfs_buffer *buf, unsigned long request, int fd, int64_t offset,
		    uint64_t size, uint64_t devptroff);

/* nvfs_fence: the value in the meta block now, with the order that a reader needs. */
uint64_t nvfs_fence(const struct nvfs_buffer *buf);

/* nvfs_wait: polls until the last fence value is there. Returns the result, or -ETIMEDOUT. */
ssize_t nvfs_wait(const struct nvfs_buffer *buf);

/* nvfs_seconds: a clock that only goes forward. */
double nvfs_seconds(void);

/* Small files as text. nvfs_read_text ends it with a 0 and returns its length. */
ssize_t nvfs_read_text(const char *path, char *text, size_t size);
ssize_t nvfs_write_text(const char *path, const char *text);

/* nvfs_file: makes a test file of gpu.h's pattern, on disk, and opens it O_RDWR | O_DIRECT. */
int nvfs_file(const char *path, size_t size, uint64_t seed);

/* nvfs_parameter: the module's parameter as a number. nvfs_set_parameter: writes it. */
long nvfs_parameter(const char *name);
int nvfs_set_parameter(const char *name, const char *value);

/*
 * nvfs_stat: the number after `key`= in the first line of the stats file that begins with `line`
 * and has that key; with an empty key the number after the line's colon. -ENOENT: no such.
 */
long long nvfs_stat(const char *line, const char *key);

/*
 * nvfs_number: what follows a name at the begin of a line, and a space. -ENOENT: no such.
 * nvfs_counter: that of the counters file.
 */
long long nvfs_number(const char *path, const char *name);
long long nvfs_counter(const char *name);

#endif /* NVFS_H */
