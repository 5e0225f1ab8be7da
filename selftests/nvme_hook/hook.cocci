// SPDX-License-Identifier: GPL-2.0
// Puts calls of hook.c into drivers/nvme/host/pci.c: spatch --sp-file hook.cocci -o OUT pci.c

@@ @@
 #include "nvme.h"
+#include "hook.h"

@@ @@
 struct nvme_iod {
 	...
 	struct dma_iova_state dma_state;
+	struct nvme_hook hook;
 	...
 };

// Requests start without segments, those without data too.
@@
identifier iod;
@@
 nvme_prep_rq(...)
 {
 	...
 	iod->total_len = 0;
+	iod->hook.segments = 0;
 	...
 }

// Before the shortcut for one segment: what is one piece of CPU pages may be many GPU pages.
@@
identifier req, dev, iod, iter, ret;
statement simple;
@@
 nvme_map_data(struct request *req)
 {
 	...
 	blk_status_t ret;
+
+	ret = nvme_hook_start(&iod->hook, req, dev->dev, &iod->dma_state, &iter);
+	if (ret)
+		return ret;
-	if (blk_rq_nr_phys_segments(req) == 1)
+	if (!iod->hook.segments && blk_rq_nr_phys_segments(req) == 1)
 		simple
-	if (!blk_rq_dma_map_iter_start(req, dev->dev, &iod->dma_state, &iter))
+	if (!iod->hook.segments &&
+	    !blk_rq_dma_map_iter_start(req, dev->dev, &iod->dma_state, &iter))
 		return iter.status;
 	...
 }

@@
identifier req, dev, iter;
@@
 nvme_pci_prp_iter_next(struct request *req, struct device *dev, struct blk_dma_iter *iter)
 {
+	struct nvme_iod *iod = blk_mq_rq_to_pdu(req);
+
 	...
-	blk_rq_dma_map_iter_next(req, dev, iter)
+	nvme_hook_next(&iod->hook, req, dev, &iod->dma_state, iter)
 	...
 }

@@
identifier iod;
symbol true;
@@
 nvme_pci_prp_save_mapping(...)
 {
 	...
 	if (
+	    iod->hook.segments ||
 	    dma_use_iova(&iod->dma_state) || ...)
 		return true;
 	...
 }

// The request's own count of segments says nothing about GPU pages.
@@
identifier req, iter, iod, entries;
@@
 nvme_pci_setup_data_sgl(struct request *req, struct blk_dma_iter *iter)
 {
 	struct nvme_iod *iod = ...;
 	...
-	unsigned int entries = blk_rq_nr_phys_segments(req);
+	unsigned int entries = iod->hook.segments ? NVME_MAX_SEGS : blk_rq_nr_phys_segments(req);
 	...
 }

@@
expression req, dev, iter;
symbol iod;
@@
 do { ... } while (
-	blk_rq_dma_map_iter_next(req, dev, iter)
+	nvme_hook_next(&iod->hook, req, dev, &iod->dma_state, iter)
 );

// Before the first segment is on record, and after.
@@
identifier req, iter, state, nvmeq, dev;
@@
 nvme_unmap_iter(struct request *req, struct blk_dma_iter *iter, struct dma_iova_state *state)
 {
 	struct nvme_queue *nvmeq = req->mq_hctx->driver_data;
 	struct device *dev = nvmeq->dev->dev;
+	struct nvme_iod *iod = blk_mq_rq_to_pdu(req);
+
+	if (iod->hook.segments) {
+		nvme_hook_unmap(&iod->hook, req, dev);
+		return;
+	}
 	...
 }

@@
identifier req, iod, dev;
@@
 nvme_unmap_data(struct request *req)
 {
 	...
+	if (iod->hook.segments) {
+		nvme_hook_unmap(&iod->hook, req, dev);
+		if (iod->nr_descriptors)
+			nvme_free_descriptors(req);
+		return;
+	}
+
 	if (iod->flags & IOD_SINGLE_SEGMENT) { ... }
 	...
 	blk_rq_dma_unmap(req, dev, ...)
 	...
 }

@@
symbol nvme_driver;
@@
 nvme_init(void)
 {
 	...
+	nvme_hook_init();
 	return pci_register_driver(&nvme_driver);
 }

@@
symbol nvme_wq;
@@
 nvme_exit(void)
 {
 	...
 	flush_workqueue(nvme_wq);
+	nvme_hook_exit();
 }
