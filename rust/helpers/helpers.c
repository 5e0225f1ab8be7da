// SPDX-License-Identifier: GPL-2.0

#include "helpers.h"
#include "ioprio.h"

#include <linux/cred.h>
#include <linux/dax.h>
#include <linux/fsnotify.h>
#include <linux/kernel_read_file.h>
#include <linux/gfp.h>
#include <linux/hardirq.h>
#include <linux/ioprio.h>
#include <linux/pagemap.h>
#include <linux/proc_fs.h>
#include <linux/rcupdate.h>
#include <linux/security.h>
#include <linux/sched/signal.h>
#ifdef CONFIG_X86
#include <asm/cpufeature.h>
#endif

struct cdev *nvfs_helper_i_cdev(const struct inode *inode)
{
	return inode->i_cdev;
}

void nvfs_helper_init_completion(struct completion *done)
{
	init_completion(done);
}

void nvfs_helper_reinit_completion(struct completion *done)
{
	reinit_completion(done);
}

bool nvfs_helper_on_hypervisor(void)
{
#ifdef CONFIG_X86
	return boot_cpu_has(X86_FEATURE_HYPERVISOR);
#else
	return false;
#endif
}

bool nvfs_helper_is_x86(void)
{
	return IS_ENABLED(CONFIG_X86_64);
}

void nvfs_helper_init_sync_kiocb(struct kiocb *iocb, struct file *file)
{
	init_sync_kiocb(iocb, file);
}

void nvfs_helper_kiocb_set_apart(struct kiocb *iocb, bool privileged)
{
	unsigned int class = privileged ? IOPRIO_CLASS_RT : IOPRIO_PRIO_CLASS(iocb->ki_ioprio);
	unsigned int level = privileged ? IOPRIO_NR_LEVELS - 1 : IOPRIO_PRIO_LEVEL(iocb->ki_ioprio);

	iocb->ki_ioprio = IOPRIO_PRIO_VALUE_HINT(class, level, NVFS_IOPRIO_SHADOW);
}

void nvfs_helper_kiocb_start_write(struct kiocb *iocb)
{
	kiocb_start_write(iocb);
}

void nvfs_helper_kiocb_end_write(struct kiocb *iocb)
{
	kiocb_end_write(iocb);
}

bool nvfs_helper_file_may_be_read(struct file *file)
{
	struct file *again;
	umode_t mode = file_inode(file)->i_mode;
	bool may;

	if (file_permission(file, MAY_READ))
		return false;
	/* The open of anything else may do more than ask. */
	if (!S_ISREG(mode) && !S_ISBLK(mode))
		return true;
	/* Some security modules decide about an open, not about an inode. No lease is waited for. */
	again = dentry_open(&file->f_path, O_RDONLY | O_LARGEFILE | O_NONBLOCK, current_cred());
	if (IS_ERR(again))
		return false;
	may = !security_file_post_open(again, MAY_READ);
	fput(again);
	return may;
}

bool nvfs_helper_is_dax(const struct inode *inode)
{
	return IS_DAX(inode);
}

bool nvfs_helper_is_encrypted(const struct inode *inode)
{
	return IS_ENCRYPTED(inode);
}

void nvfs_helper_get_file(struct file *file)
{
	get_file(file);
}

void nvfs_helper_fsnotify(struct file *file, bool write)
{
	if (write)
		fsnotify_modify(file);
	else
		fsnotify_access(file);
}

loff_t nvfs_helper_i_size_read(const struct inode *inode)
{
	return i_size_read(inode);
}

void nvfs_helper_inode_lock(struct inode *inode)
{
	inode_lock(inode);
}

void nvfs_helper_inode_unlock(struct inode *inode)
{
	inode_unlock(inode);
}

ssize_t nvfs_helper_read_start(const char *path, void *buf, size_t size)
{
	size_t file_size;

	return kernel_read_file_from_path_initns(path, 0, &buf, size, &file_size, READING_UNKNOWN);
}

bool nvfs_helper_mapping_writably_mapped(struct address_space *mapping)
{
	return mapping_writably_mapped(mapping);
}

bool nvfs_helper_mapping_stable_writes(const struct address_space *mapping)
{
	return mapping_stable_writes(mapping);
}

void nvfs_helper_invalidate_lock(struct address_space *mapping)
{
	filemap_invalidate_lock(mapping);
}

void nvfs_helper_invalidate_unlock(struct address_space *mapping)
{
	filemap_invalidate_unlock(mapping);
}

/* Since 7.3 the last byte is an unsigned number. */
void nvfs_helper_truncate_pages(struct address_space *mapping, loff_t first, loff_t last)
{
	truncate_inode_pages_range(mapping, first, last);
}

void *nvfs_helper_page_address(struct page *page)
{
	return page_address(page);
}

void nvfs_helper_put_page(struct page *page)
{
	put_page(page);
}

void nvfs_helper_get_page(struct page *page)
{
	get_page(page);
}

u64 __percpu *nvfs_helper_alloc_percpu_u64s(size_t n)
{
	return __alloc_percpu(array_size(n, sizeof(u64)), __alignof__(u64));
}

void nvfs_helper_percpu_add(u64 __percpu *counters, size_t i, u64 value)
{
	this_cpu_add(counters[i], value);
}

u64 nvfs_helper_percpu_sum(u64 __percpu *counters, size_t i)
{
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(*per_cpu_ptr(&counters[i], cpu));
	return sum;
}

void nvfs_helper_percpu_clear(u64 __percpu *counters, size_t i)
{
	int cpu;

	for_each_possible_cpu(cpu)
		WRITE_ONCE(*per_cpu_ptr(&counters[i], cpu), 0);
}

bool nvfs_helper_may_sleep(void)
{
	/*
	 * A thread of the kernel that completes I/O may be what another wait depends on. Without the
	 * count a spinlock or an RCU section cannot be seen.
	 */
	return IS_ENABLED(CONFIG_PREEMPT_COUNT) && in_task() && !(current->flags & PF_KTHREAD) &&
	       !irqs_disabled() && !in_atomic() && !rcu_preempt_depth();
}

/* Pages of page caches that the task has made dirty, from time to time begun anew. */
unsigned int nvfs_helper_pages_dirtied(void)
{
	return current->nr_dirtied;
}

bool nvfs_helper_fatal_signal_pending(void)
{
	return fatal_signal_pending(current);
}

void *nvfs_helper_pde_data(const struct inode *inode)
{
	return pde_data(inode);
}

void nvfs_helper_ratelimit_state_init(struct ratelimit_state *state, int interval, int burst)
{
	ratelimit_state_init(state, interval, burst);
}

/*
 * Waits for every context that may still be in the last instructions of one of our callbacks:
 * interrupts and RCU readers, and preempted tasks where the kernel can tell.
 */
void nvfs_helper_synchronize_callers(void)
{
	synchronize_rcu();
#ifdef CONFIG_TASKS_RCU
	synchronize_rcu_tasks();
#endif
}

struct workqueue_struct *nvfs_helper_alloc_workqueue(const char *name)
{
	return alloc_workqueue("%s", WQ_UNBOUND | WQ_MEM_RECLAIM, 0, name);
}

void nvfs_helper_init_work(struct work_struct *work, work_func_t func)
{
	INIT_WORK(work, func);
}

void nvfs_helper_schedule_work(struct work_struct *work)
{
	schedule_work(work);
}

void nvfs_helper_wmb(void)
{
	wmb();
}
