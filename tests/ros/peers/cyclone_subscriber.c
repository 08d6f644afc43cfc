/* Cyclone DDS in C: takes images and detections, and prints what is in them.
 *
 * cyclone_subscriber DOMAIN IMAGE_TOPIC DETECTIONS_TOPIC COUNT SECONDS
 */
#include <dds/dds.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "messages.h"

typedef sensor_msgs_msg_dds__Image_ Image;
typedef vision_msgs_msg_dds__Detection2DArray_ Detections;

static dds_entity_t reader(dds_entity_t participant, const dds_topic_descriptor_t *type, const char *name) {
  char full[256];
  snprintf(full, sizeof full, "rt/%s", name);
  dds_qos_t *qos = dds_create_qos();
  dds_qset_reliability(qos, DDS_RELIABILITY_RELIABLE, DDS_SECS(1));
  dds_qset_history(qos, DDS_HISTORY_KEEP_LAST, 400);
  dds_entity_t topic = dds_create_topic(participant, type, full, NULL, NULL);
  dds_entity_t made = dds_create_reader(participant, topic, qos, NULL);
  dds_delete_qos(qos);
  return made;
}

static void print_image(const Image *image) {
  unsigned long long sum = 0;
  for (uint32_t at = 0; at < image->data._length; ++at) 
    sum += (at % 251 + 1) * image->data._buffer[at];
  printf("image %d %u %s %s %u %u %u %llu\n", image->header.stamp.sec, image->header.stamp.nanosec,
         image->header.frame_id, image->encoding, image->width, image->height, image->data._length, sum);
}

static void print_detections(const Detections *found) {
  printf("detections %d %u %s", found->header.stamp.sec, found->header.stamp.nanosec, found->header.frame_id);
  for (uint32_t at = 0; at < found->detections._length; ++at) {
    const vision_msgs_msg_dds__Detection2D_ *one = &found->detections._buffer[at];
    printf(" %s:%g:%g:%g:%g:%g", one->results._buffer[0].hypothesis.class_id,
           one->results._buffer[0].hypothesis.score, one->bbox.center.position.x, one->bbox.center.position.y,
           one->bbox.size_x, one->bbox.size_y);
  }
  printf("\n");
}

static int take(dds_entity_t from, int images) {
  void *sample[1] = {NULL};
  dds_sample_info_t info;
  int valid = 0;
  while (dds_take(from, sample, &info, 1, 1) > 0) {
    if (info.valid_data) {
      ++valid;
      if (images) print_image(sample[0]);
      else print_detections(sample[0]);
    }
    dds_return_loan(from, sample, 1);
  }
  return valid;
}

int main(int argc, char **argv) {
  if (argc != 6) return 2;
  int count = atoi(argv[4]), images = 0, detections = 0;
  dds_entity_t participant = dds_create_participant((dds_domainid_t)atoi(argv[1]), NULL, NULL);
  if (participant < 0) return 1;
  dds_entity_t of_images = reader(participant, &sensor_msgs_msg_dds__Image__desc, argv[2]);
  dds_entity_t of_detections = reader(participant, &vision_msgs_msg_dds__Detection2DArray__desc, argv[3]);
  if (of_images < 0 || of_detections < 0) return 1;
  dds_time_t end = dds_time() + DDS_SECS(atoi(argv[5]));
  while ((images < count || detections < count) && dds_time() < end) {
    images += take(of_images, 1);
    detections += take(of_detections, 0);
    dds_sleepfor(DDS_MSECS(1));
  }
  fflush(stdout);
  dds_delete(participant);
  return images == count && detections == count ? 0 : 1;
}
