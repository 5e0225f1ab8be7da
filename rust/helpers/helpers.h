/* SPDX-License-Identifier: GPL-2.0 */
/* Out-of-line twins of the kernel's inline functions and macros that Rust code needs. */
#ifndef NVFS_HELPERS_H
#define NVFS_HELPERS_H

#include <linux/completion.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/percpu.h>
#include <linux/ratelimit.h>
#include <linux/workqueue.h>

/* The file modes that are `__force` casts, which bindgen does not evaluate. */
enum nvfs_fmode {
	NVFS_FMODE_READ = (__force unsigned int)FMODE_READ,
	NVFS_FMODE_WRITE = (__force unsigned int)FMODE_WRITE,
	NVFS_FMODE_CAN_READ = (__force unsigned int)FMODE_CAN_READ,
	NVFS_FMODE_CAN_WRITE = (__force unsigned int)FMODE_CAN_WRITE,
};

/* linux/gfp_types.h: see GFP_CHARGED in rust/kernel/alloc.rs. */
enum nvfs_gfp {
	NVFS_GFP_CHARGED = (__force unsigned int)(GFP_KERNEL_ACCOUNT | __GFP_RETRY_MAYFAIL |
						  __GFP_NOWARN),
};

/* linux/cdev.h */
struct cdev *nvfs_helper_i_cdev(const struct inode *inode);

/* linux/completion.h */
void nvfs_helper_init_completion(struct completion *done);
void nvfs_helper_reinit_completion(struct completion *done);

/* linux/cpufeature.h */
bool nvfs_helper_on_hypervisor(void);
bool nvfs_helper_is_x86(void);

/* linux/fs.h */
void nvfs_helper_init_sync_kiocb(struct kiocb *iocb, struct file *file);
/* From all but other shadow memory; `privileged`: also from programs that set the same hint. */
void nvfs_helper_kiocb_set_apart(struct kiocb *iocb, bool privileged);
void nvfs_helper_kiocb_start_write(struct kiocb *iocb);
void nvfs_helper_kiocb_end_write(struct kiocb *iocb);
bool nvfs_helper_file_may_be_read(struct file *file);
bool nvfs_helper_is_dax(const struct inode *inode);
bool nvfs_helper_is_encrypted(const struct inode *inode);
void nvfs_helper_get_file(struct file *file);
void nvfs_helper_fsnotify(struct file *file, bool write);
loff_t nvfs_helper_i_size_read(const struct inode *inode);
void nvfs_helper_inode_lock(struct inode *inode);
void nvfs_helper_inode_unlock(struct inode *inode);
void nvfs_helper_invalidate_lock(struct address_space *mapping);
bool nvfs_helper_mapping_writably_mapped(struct address_space *mapping);
bool nvfs_helper_mapping_stable_writes(const struct address_space *mapping);
void nvfs_helper_invalidate_unlock(struct address_space *mapping);
void nvfs_helper_truncate_pages(struct address_space *mapping, loff_t first, loff_t last);

/* linux/kernel_read_file.h */
ssize_t nvfs_helper_read_start(const char *path, void *buf, size_t size);

/* linux/mm.h */
void *nvfs_helper_page_address(struct page *page);
void nvfs_helper_put_page(struct page *page);
void nvfs_helper_get_page(struct page *page);

/* linux/percpu.h */
u64 __percpu *nvfs_helper_alloc_percpu_u64s(size_t n);
void nvfs_helper_percpu_add(u64 __percpu *counters, size_t i, u64 value);
u64 nvfs_helper_percpu_sum(u64 __percpu *counters, size_t i);
void nvfs_helper_percpu_clear(u64 __percpu *counters, size_t i);

/* linux/preempt.h, linux/sched/signal.h */
bool nvfs_helper_may_sleep(void);
bool nvfs_helper_fatal_signal_pending(void);
unsigned int nvfs_helper_pages_dirtied(void);

/* linux/proc_fs.h */
void *nvfs_helper_pde_data(const struct inode *inode);

/* linux/ratelimit.h */
void nvfs_helper_ratelimit_state_init(struct ratelimit_state *state, int interval, int burst);

/* linux/rcupdate.h */
void nvfs_helper_synchronize_callers(void);

/* linux/workqueue.h */
struct workqueue_struct *nvfs_helper_alloc_workqueue(const char *name);
void nvfs_helper_init_work(struct work_struct *work, work_func_t func);
void nvfs_helper_schedule_work(struct work_struct *work);

/* asm/barrier.h */
void nvfs_helper_wmb(void);

#endif /* NVFS_HELPERS_H */
