// Fast DDS: publishes images as a ROS 2 node would, and prints stamp, weighted sum of bytes and first bytes of each.
//
// fast_publisher DOMAIN TOPIC COUNT WIDTH HEIGHT FRAMES_PER_S
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/dds/publisher/DataWriter.hpp>
#include <fastdds/dds/publisher/Publisher.hpp>
#include <fastdds/dds/topic/TypeSupport.hpp>
#include <fastdds/rtps/transport/UDPv4TransportDescriptor.h>
#include <fastrtps/utils/IPLocator.h>

#include "messagesPubSubTypes.h"

using namespace eprosima::fastdds::dds;
using Image = sensor_msgs::msg::dds_::Image_;
using ImageType = sensor_msgs::msg::dds_::Image_PubSubType;

static DomainParticipant* join(int domain) {
  // Loopback alone, without multicast.
  DomainParticipantQos qos;
  qos.transport().use_builtin_transports = false;
  auto udp = std::make_shared<eprosima::fastdds::rtps::UDPv4TransportDescriptor>();
  udp->interfaceWhiteList.push_back("127.0.0.1");
  qos.transport().user_transports.push_back(udp);
  eprosima::fastrtps::rtps::Locator_t peer;
  eprosima::fastrtps::rtps::IPLocator::setIPv4(peer, 127, 0, 0, 1);
  qos.wire_protocol().builtin.initialPeersList.push_back(peer);
  return DomainParticipantFactory::get_instance()->create_participant(domain, qos);
}

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  const int count = std::atoi(argv[3]), width = std::atoi(argv[4]), height = std::atoi(argv[5]);
  const double fps = std::atof(argv[6]);
  DomainParticipant* participant = join(std::atoi(argv[1]));
  if (participant == nullptr) return 1;
  TypeSupport type(new ImageType());
  type.register_type(participant);
  Topic* topic = participant->create_topic(std::string("rt/") + argv[2], type.get_type_name(), TOPIC_QOS_DEFAULT);
  DataWriterQos qos;
  qos.reliability().kind = RELIABLE_RELIABILITY_QOS;
  qos.history().kind = KEEP_LAST_HISTORY_QOS;
  qos.history().depth = 50;
  qos.publish_mode().kind = ASYNCHRONOUS_PUBLISH_MODE;
  qos.endpoint().history_memory_policy = eprosima::fastrtps::rtps::PREALLOCATED_WITH_REALLOC_MEMORY_MODE;
  DataWriter* writer = participant->create_publisher(PUBLISHER_QOS_DEFAULT)->create_datawriter(topic, qos);

  PublicationMatchedStatus matched;
  do {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    writer->get_publication_matched_status(matched);
  } while (matched.current_count < 1);

  Image image;
  image.header().frame_id("camera_front");
  image.height(height);
  image.width(width);
  image.encoding("rgb8");
  image.step(3 * width);
  image.data().resize(size_t(3) * width * height);
  auto due = std::chrono::steady_clock::now();
  for (int number = 0; number < count; ++number) {
    unsigned long long sum = 0;
    for (size_t at = 0; at < image.data().size(); ++at)
      sum += (at % 251 + 1) * (image.data()[at] = static_cast<uint8_t>((at * 31 + number * 7 + (at >> 8)) & 255));
    image.header().stamp().sec(1700000000 + number);
    image.header().stamp().nanosec(number * 1001 + 1);
    if (!writer->write(&image)) return 1;
    std::printf("%d %u %llu", image.header().stamp().sec(), image.header().stamp().nanosec(), sum);
    for (int at = 0; at < 12; ++at) std::printf(" %d", image.data()[at]);
    std::printf("\n");
    due += std::chrono::microseconds(static_cast<long>(1e6 / fps));
    std::this_thread::sleep_until(due);
  }
  std::fflush(stdout);
  writer->wait_for_acknowledgments(eprosima::fastrtps::Duration_t(10, 0));
  DomainParticipantFactory::get_instance()->delete_participant(participant);
  return 0;
}
