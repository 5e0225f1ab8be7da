# SPDX-License-Identifier: GPL-2.0
# Bad sectors: run --errors md0. First the drive itself, then a file on the raid0 that it is half of.
export WAY="${WAY:-}"
bad_read=671088640 bad_write=838860800
load_modules
check "the drive has bad sectors" sh -c "! dd if=$NVME_MD0 of=/dev/null bs=4096 count=1 skip=$((bad_read / 4096)) iflag=direct 2> /dev/null"
tap media "$NVME_MD0" $bad_read $bad_write
mount_md
fallocate -l 1700M /mnt/md/file
# in_file BYTE: where in the file a byte of the drive is; the array has chunks of 64 KiB, by turns.
in_file() {
	filefrag -b4096 -v /mnt/md/file | awk -v at=$(($1 / 65536 * 131072 + $1 % 65536)) '
		$1 ~ /^[0-9]+:$/ {
			gsub("[.:]+", " ")
			if ($4 * 4096 <= at && at < ($5 + 1) * 4096) printf "%.0f\n", at - $4 * 4096 + $2 * 4096
		}'
}
tap media /mnt/md/file "$(in_file $bad_read)" "$(in_file $bad_write)"
umount /mnt/md
mdadm --stop --quiet /dev/md0
check "2.6: unload" unload_modules
finish
