// The BPF maps that collectors work on, without a program attached: tests write what the kernel side would.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string_view>

#include "collector/embedded_object.h"
#include "collector/flow_maps.h"
#include "kernel_tests.h"

namespace kitty::testing {

class FlowMapsFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    KITTY_NEEDS_KERNEL();
    const auto object = loader::Object::parse(collector::embedded_object());
    ASSERT_TRUE(object) << object.error().message();
    auto maps = collector::FlowMaps::create(*object);
    ASSERT_TRUE(maps) << maps.error().message();
    maps_ = std::make_unique<collector::FlowMaps>(std::move(*maps));
  }
  int map_fd(std::string_view name) const {
    for (const loader::Map& map : maps_->maps()) {
      if (map.name() == name) return map.fd();
    }
    ADD_FAILURE() << "no map " << name;
    return -1;
  }

  std::unique_ptr<collector::FlowMaps> maps_;
};

}  // namespace kitty::testing
