#include "loader/map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "loader/sys.h"
#include "tests/allocation_count.h"
#include "tests/unit/kernel_tests.h"

namespace kitty::loader {
namespace {

TEST(CountCpus, ReadsTheKernelsListFormat) {
  struct Case {
    const char* name;
    std::string_view list;
    int want;  // -1: an error
  };
  const Case cases[] = {
      {"one", "0\n", 1},
      {"range", "0-127\n", 128},
      {"no newline", "0-3", 4},
      {"holes", "0-3,8,10-11\n", 7},
      {"not from zero", "4-7\n", 4},
      {"largest", "0-8191\n", 8192},
      {"empty", "", -1},
      {"only a newline", "\n", -1},
      {"too many", "0-8192\n", -1},
      {"overflow", "0-4294967296\n", -1},
      {"backwards", "3-0\n", -1},
      {"overlap", "0-3,2\n", -1},
      {"no last", "0-\n", -1},
      {"trailing comma", "0,\n", -1},
      {"garbage after", "0-3x\n", -1},
      {"two lines", "0-3\n0-3\n", -1},
      {"words", "none\n", -1},
      {"sign", "-1\n", -1},
  };
  for (const Case& c : cases) {
    const auto got = count_cpus(c.list);
    EXPECT_EQ(got ? static_cast<int>(*got) : -1, c.want) << c.name;
  }
}

TEST(ParseMemlock, FindsItsLine) {
  struct Case {
    const char* name;
    std::string_view text;
    int64_t want;  // -1: an error
  };
  const Case cases[] = {
      {"as the kernel writes it", "pos:\t0\nflags:\t02000002\nmap_type:\t2\nmemlock:\t4096\nmap_id:\t7\n",
       4096},
      {"zero", "memlock:\t0\n", 0},
      {"last line without its newline", "pos:\t0\nmemlock:\t12", 12},
      {"absent", "pos:\t0\n", -1},
      {"empty", "", -1},
      {"no number", "memlock:\t\n", -1},
      {"not a number", "memlock:\t12kB\n", -1},
      {"overflow", "memlock:\t99999999999999999999999\n", -1},
      {"another field's tail", "xmemlock:\t5\n", -1},
  };
  for (const Case& c : cases) {
    const auto got = parse_memlock(c.text);
    EXPECT_EQ(got ? static_cast<int64_t>(*got) : -1, c.want) << c.name;
  }
}

MapSpec hash_spec(uint32_t max_entries) {
  MapSpec spec;
  spec.name = "owned";
  spec.type = BPF_MAP_TYPE_HASH;
  spec.key_size = 8;
  spec.value_size = 12;
  spec.max_entries = max_entries;
  return spec;
}

struct Value {
  std::array<uint32_t, 3> words;
  bool operator==(const Value&) const = default;
};

TEST(Map, InsertsFindsAndRemoves) {
  KITTY_NEEDS_KERNEL();
  auto map = Map::create(hash_spec(4));
  ASSERT_TRUE(map) << map.error().message();
  EXPECT_EQ(map->transfer_size(), 12U);

  const uint64_t key = 42;
  Value value{{7, 7, 7}};
  const auto absent = map->lookup(key, value);
  ASSERT_TRUE(absent) << absent.error().message();
  EXPECT_FALSE(*absent);
  EXPECT_EQ(value, (Value{{7, 7, 7}})) << "an absent key must leave the value alone";

  ASSERT_TRUE(map->update(key, Value{{1, 2, 3}}, BPF_NOEXIST));
  const auto present = map->lookup(key, value);
  ASSERT_TRUE(present) << present.error().message();
  EXPECT_TRUE(*present);
  EXPECT_EQ(value, (Value{{1, 2, 3}}));

  const Status again = map->update(key, Value{}, BPF_NOEXIST);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().err, EEXIST);
  const Status missing = map->update(uint64_t{43}, Value{}, BPF_EXIST);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().err, ENOENT);

  EXPECT_EQ(map->remove(key).value_or(false), true);
  EXPECT_EQ(map->remove(key).value_or(true), false);
  EXPECT_EQ(map->lookup(key, value).value_or(true), false);
}

TEST(Map, FullIsAnError) {
  KITTY_NEEDS_KERNEL();
  auto map = Map::create(hash_spec(4));
  ASSERT_TRUE(map) << map.error().message();
  for (uint64_t key = 0; key < 4; ++key) ASSERT_TRUE(map->update(key, Value{})) << key;
  const Status full = map->update(uint64_t{4}, Value{});
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().err, E2BIG);
  EXPECT_EQ(full.error().object, "owned");
}

TEST(Map, WalksEveryKeyOnce) {
  KITTY_NEEDS_KERNEL();
  auto map = Map::create(hash_spec(100));
  ASSERT_TRUE(map) << map.error().message();
  uint64_t next = 0;
  EXPECT_EQ(map->next_key<uint64_t>(nullptr, next).value_or(true), false) << "an empty map has no first key";
  for (uint64_t key = 0; key < 100; ++key) ASSERT_TRUE(map->update(key * 1'000'003, Value{}));

  std::set<uint64_t> seen;
  uint64_t key = 0;
  bool more = map->next_key<uint64_t>(nullptr, key).value_or(false);
  for (uint32_t step = 0; more && step < map->max_entries(); ++step) {
    EXPECT_TRUE(seen.insert(key).second) << key;
    more = map->next_key(&key, next).value_or(false);
    key = next;
  }
  EXPECT_FALSE(more);
  EXPECT_EQ(seen.size(), 100U);
}

TEST(Map, RefusesOtherSizesThanItsOwn) {
  KITTY_NEEDS_KERNEL();
  auto map = Map::create(hash_spec(4));
  ASSERT_TRUE(map) << map.error().message();
  const uint32_t short_key = 1;
  const uint64_t key = 1;
  Value value{};
  uint64_t short_value = 0;
  uint32_t short_next = 0;
  uint64_t next = 0;
  EXPECT_EQ(map->lookup(short_key, value).error().err, EINVAL);
  EXPECT_EQ(map->lookup(key, short_value).error().err, EINVAL);
  EXPECT_EQ(map->update(short_key, value).error().err, EINVAL);
  EXPECT_EQ(map->update(key, short_value).error().err, EINVAL);
  EXPECT_EQ(map->remove(short_key).error().err, EINVAL);
  EXPECT_EQ(map->next_key<uint32_t>(nullptr, short_next).error().err, EINVAL);
  EXPECT_EQ(map->next_key(&short_key, short_next).error().err, EINVAL);
  EXPECT_EQ(map->next_key(&key, next).value_or(true), false) << "nothing was inserted on the way";
  EXPECT_EQ(map->lookup(key, short_value).error().detail, "8 bytes given, the map has 12");
}

TEST(Map, AllocatesNothingWhileItsCallsSucceed) {
  KITTY_NEEDS_KERNEL();
  auto map = Map::create(hash_spec(4));
  ASSERT_TRUE(map) << map.error().message();
  const AllocationCount allocations;
  bool good = true;
  for (uint64_t key = 0; key < 4; ++key) {
    Value value{};
    uint64_t next = 0;
    good = good && map->lookup(key, value).has_value();
    good = good && map->update(key, value).has_value();
    good = good && map->next_key(&key, next).has_value();
    good = good && map->remove(key).has_value();
  }
  const uint64_t counted = allocations.count();
  EXPECT_TRUE(good);
  EXPECT_EQ(counted, 0U);
  const std::string control(100, 'x');
  EXPECT_GT(allocations.count(), counted) << "the count must see " << control.size() << " bytes";
}

// A value of 4 bytes takes 8 for each possible CPU; a buffer by any other count would be overrun by the
// kernel.
TEST(Map, MovesPerCpuValuesOfEveryPossibleCpu) {
  KITTY_NEEDS_KERNEL();
  MapSpec spec;
  spec.name = "counters";
  spec.type = BPF_MAP_TYPE_PERCPU_ARRAY;
  spec.key_size = 4;
  spec.value_size = 4;
  spec.max_entries = 2;
  auto map = Map::create(spec);
  ASSERT_TRUE(map) << map.error().message();
  const auto cpus = possible_cpus();
  ASSERT_TRUE(cpus) << cpus.error().message();
  EXPECT_EQ(map->transfer_size(), size_t{8} * *cpus);

  const uint32_t key = 1;
  std::vector<uint64_t> values(*cpus);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 100 + i;
  ASSERT_TRUE(map->update_raw(std::as_bytes(std::span(&key, 1)), std::as_bytes(std::span(values)), BPF_ANY));
  // A guard behind the buffer shows that the kernel writes exactly as much as was asked for.
  std::vector<uint64_t> read(values.size() + 1, 0xfefefefefefefefe);
  const auto found = map->lookup_per_cpu(key, std::span(read).first(values.size()));
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_TRUE(*found);
  EXPECT_TRUE(std::equal(values.begin(), values.end(), read.begin()));
  EXPECT_EQ(read.back(), 0xfefefefefefefefe);

  const auto whole = map->lookup_per_cpu(key, std::span(read));
  ASSERT_FALSE(whole);
  EXPECT_EQ(whole.error().err, EINVAL);
}

TEST(Map, FreezesReadOnlyData) {
  KITTY_NEEDS_KERNEL();
  MapSpec spec;
  spec.name = ".rodata";
  spec.type = BPF_MAP_TYPE_ARRAY;
  spec.key_size = 4;
  spec.value_size = 8;
  spec.max_entries = 1;
  spec.flags = BPF_F_RDONLY_PROG;
  const uint64_t content = 0x1122334455667788;
  spec.initial.resize(sizeof content);
  memcpy(spec.initial.data(), &content, sizeof content);
  spec.freeze = true;
  auto map = Map::create(spec);
  ASSERT_TRUE(map) << map.error().message();
  const uint32_t key = 0;
  uint64_t value = 0;
  EXPECT_EQ(map->lookup(key, value).value_or(false), true);
  EXPECT_EQ(value, content);
  const Status written = map->update(key, uint64_t{1});
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().err, EPERM);
}

TEST(Map, InitialContentOfAnotherSizeIsAnError) {
  KITTY_NEEDS_KERNEL();
  MapSpec spec = testing::counter_map();
  spec.initial.resize(spec.value_size - 1);
  const auto map = Map::create(spec);
  ASSERT_FALSE(map);
  EXPECT_EQ(map.error().err, EINVAL);
}

TEST(Map, SaysWhyItCannotBeCreated) {
  KITTY_NEEDS_KERNEL();
  MapSpec spec = hash_spec(4);
  spec.type = 100'000;
  const auto map = Map::create(spec);
  ASSERT_FALSE(map);
  EXPECT_EQ(map.error().message(),
            "create map 'owned': Invalid argument: this kernel does not know the map's type or flags, or "
            "refuses its "
            "sizes");
}

TEST(Map, TellsItsMemory) {
  KITTY_NEEDS_KERNEL();
  const auto map = Map::create(hash_spec(1000));
  ASSERT_TRUE(map) << map.error().message();
  const auto bytes = map->memlock_bytes();
  ASSERT_TRUE(bytes) << bytes.error().message();
  EXPECT_GE(*bytes, uint64_t{1000} * (8 + 12));
}

}  // namespace
}  // namespace kitty::loader
