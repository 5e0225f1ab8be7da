// SPDX-License-Identifier: GPL-2.0
/*
 * QEMU plugin: counts the instructions that the guest executes, and tells the guest itself. The
 * guest asks by no-ops that no compiler makes, see ../counter.h.
 *
 * Arguments: profile=FILE, where profiles go: a line `ADDRESS COUNT` for each 16 bytes of kernel
 * text that ran.
 *
 * Debian has no qemu-plugin.h: the few functions that are used are declared here, as of version 7
 * of the interface.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../counter.h"

typedef uint64_t qemu_plugin_id_t;
typedef struct {
	const char *target_arch;
	struct {
		int min, cur;
	} version;
	bool system_emulation;
} qemu_info_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_scoreboard;
struct qemu_plugin_register;
typedef struct {
	struct qemu_plugin_scoreboard *score;
	size_t offset;
} qemu_plugin_u64;
typedef struct {
	struct qemu_plugin_register *handle;
	const char *name;
	const char *feature;
	bool is_readonly;
} qemu_plugin_reg_descriptor;
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_CB_R_REGS };

/* GLib's, as far as they are public. */
typedef struct {
	char *data;
	unsigned int len;
} GArray;
typedef struct {
	uint8_t *data;
	unsigned int len;
} GByteArray;
GByteArray *g_byte_array_new(void);
GByteArray *g_byte_array_set_size(GByteArray *array, unsigned int length);

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t,
					   void (*)(struct qemu_plugin_tb *, void *), void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *, void *, size_t);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *,
					    void (*)(unsigned int, void *),
					    enum qemu_plugin_cb_flags, void *);
void qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(struct qemu_plugin_insn *,
							 enum qemu_plugin_op, qemu_plugin_u64,
							 uint64_t);
struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t);
uint64_t qemu_plugin_u64_sum(qemu_plugin_u64);
GArray *qemu_plugin_get_registers(void);
bool qemu_plugin_read_register(struct qemu_plugin_register *, GByteArray *);
bool qemu_plugin_read_memory_vaddr(uint64_t, GByteArray *, size_t);
bool qemu_plugin_write_memory_vaddr(uint64_t, GByteArray *);
void qemu_plugin_outs(const char *);

__attribute__((visibility("default"))) int qemu_plugin_version = 7;

static struct qemu_plugin_scoreboard *score;
/* Text whose instructions are counted apart. */
static uint64_t apart_start, apart_end;

/* --- The profile: a counter for each 16 bytes of kernel text that was ever translated. */

#define SLOTS	(1u << 17)

static const char *profile_path;
static struct qemu_plugin_scoreboard *profile;
static uint64_t slot_address[SLOTS];	/* a hash table; 0 is a free place */
static uint64_t slot_before[SLOTS];

static qemu_plugin_u64 slot_counter(uint32_t slot)
{
	return (qemu_plugin_u64){ profile, slot * sizeof(uint64_t) };
}

/* The last slot takes what finds no other. */
static uint32_t slot_of(uint64_t address)
{
	uint64_t granule = address >> 4;
	uint32_t n, slot = (granule * 0x9e3779b97f4a7c15ull) >> 47;

	for (n = 0; n < SLOTS - 1; n++, slot++) {
		slot %= SLOTS - 1;
		if (!slot_address[slot])
			slot_address[slot] = granule << 4;
		if (slot_address[slot] == granule << 4)
			return slot;
	}
	return SLOTS - 1;
}

static void profile_begin(void)
{
	uint32_t i;

	for (i = 0; profile && i < SLOTS; i++)
		slot_before[i] = qemu_plugin_u64_sum(slot_counter(i));
}

static void profile_end(void)
{
	FILE *file = profile ? fopen(profile_path, "a") : NULL;
	uint32_t i;

	if (!file)
		return;
	fprintf(file, "profile\n");
	for (i = 0; i < SLOTS; i++) {
		uint64_t count = qemu_plugin_u64_sum(slot_counter(i)) - slot_before[i];

		if (count)
			fprintf(file, "%016" PRIx64 " %" PRIu64 "\n", slot_address[i], count);
	}
	fclose(file);
}

/* --- What the guest asks. */

static qemu_plugin_u64 counter(size_t offset)
{
	return (qemu_plugin_u64){ score, offset };
}

#define COUNTER(field)	counter(offsetof(struct counts, field))

static void read_counts(uint64_t to)
{
	struct counts counts = {
		.kernel = qemu_plugin_u64_sum(COUNTER(kernel)),
		.rep = qemu_plugin_u64_sum(COUNTER(rep)),
		.user = qemu_plugin_u64_sum(COUNTER(user)),
		.atomic = qemu_plugin_u64_sum(COUNTER(atomic)),
		.apart = qemu_plugin_u64_sum(COUNTER(apart)),
	};
	GByteArray *bytes = g_byte_array_set_size(g_byte_array_new(), sizeof(counts));

	memcpy(bytes->data, &counts, sizeof(counts));
	if (!qemu_plugin_write_memory_vaddr(to, bytes))
		qemu_plugin_outs("count: the guest's memory cannot be written\n");
}

static void set_apart(uint64_t from)
{
	GByteArray *bytes = g_byte_array_new();

	if (!qemu_plugin_read_memory_vaddr(from, bytes, 16))
		return;
	memcpy(&apart_start, bytes->data, 8);
	memcpy(&apart_end, bytes->data + 8, 8);
}

/* The register rax, which is the same for all CPUs. */
static struct qemu_plugin_register *rax(void)
{
	static struct qemu_plugin_register *found;
	qemu_plugin_reg_descriptor *descriptor;
	GArray *registers;
	unsigned int i;

	if (found)
		return found;
	registers = qemu_plugin_get_registers();
	descriptor = (void *)registers->data;
	for (i = 0; i < registers->len; i++)
		if (!strcmp(descriptor[i].name, "rax"))
			found = descriptor[i].handle;
	return found;
}

static void asked(unsigned int vcpu, void *what)
{
	GByteArray *bytes = g_byte_array_new();
	uint64_t address = 0;

	(void)vcpu;
	if (!rax() || !qemu_plugin_read_register(rax(), bytes) || bytes->len < 8)
		return qemu_plugin_outs("count: no register rax\n");
	memcpy(&address, bytes->data, 8);
	switch ((uintptr_t)what) {
	case COUNTER_READ:
		return read_counts(address);
	case COUNTER_APART:
		return set_apart(address);
	case COUNTER_PROFILE_BEGIN:
		return profile_begin();
	case COUNTER_PROFILE_END:
		return profile_end();
	}
}

/* --- Translation. */

/* An instruction that is one step of a repeated string operation, or a locked one. */
static void classify(const uint8_t *code, size_t len, bool *rep, bool *atomic)
{
	bool repeated = false;
	size_t i;

	*rep = *atomic = false;
	for (i = 0; i + 1 < len; i++) {
		uint8_t c = code[i];

		if (c == 0xf2 || c == 0xf3)
			repeated = true;
		else if (c == 0xf0)
			*atomic = true;
		else if (c != 0x66 && c != 0x67 && c != 0x2e && c != 0x36 && c != 0x3e &&
			 c != 0x26 && c != 0x64 && c != 0x65 && (c & 0xf0) != 0x40)
			break;
	}
	if (i >= len)
		return;
	/* xchg with memory is locked by itself. */
	if ((code[i] == 0x86 || code[i] == 0x87) && i + 1 < len && code[i + 1] >> 6 != 3)
		*atomic = true;
	*rep = repeated && ((code[i] >= 0xa4 && code[i] <= 0xaf && code[i] != 0xa8 &&
			     code[i] != 0xa9) || (code[i] >= 0x6c && code[i] <= 0x6f));
}

static void translated(struct qemu_plugin_tb *tb, void *unused)
{
	static const uint8_t magic[] = { COUNTER_BYTES };
	size_t i, n = qemu_plugin_tb_n_insns(tb);

	(void)unused;
	for (i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint64_t address = qemu_plugin_insn_vaddr(insn);
		uint8_t code[15];
		size_t len = qemu_plugin_insn_data(insn, code, sizeof(code));
		qemu_plugin_u64 in = COUNTER(user);
		bool rep, atomic;

		classify(code, len, &rep, &atomic);
		if (address >> 63) {
			in = rep ? COUNTER(rep) : COUNTER(kernel);
			if (address >= apart_start && address < apart_end)
				in = COUNTER(apart);
			if (atomic)
				qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
					insn, QEMU_PLUGIN_INLINE_ADD_U64, COUNTER(atomic), 1);
			if (profile && !rep)
				qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
					insn, QEMU_PLUGIN_INLINE_ADD_U64,
					slot_counter(slot_of(address)), 1);
		}
		qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
			insn, QEMU_PLUGIN_INLINE_ADD_U64, in, 1);
		if (len == sizeof(magic) + 1 && !memcmp(code, magic, sizeof(magic)))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, asked, QEMU_PLUGIN_CB_R_REGS,
							       (void *)(uintptr_t)code[len - 1]);
	}
}

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id,
							       const qemu_info_t *info, int argc,
							       char **argv)
{
	(void)info;
	score = qemu_plugin_scoreboard_new(sizeof(struct counts));
	if (argc > 0 && !strncmp(argv[0], "profile=", 8)) {
		profile_path = strdup(argv[0] + 8);
		profile = qemu_plugin_scoreboard_new(SLOTS * sizeof(uint64_t));
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated, NULL);
	return 0;
}
