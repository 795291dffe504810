#include "engine/packed_store.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "kernels/weight_fixture.h"
#include "model/format/test_files.h"

namespace cleave {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing_files::TempFolder;

constexpr uint32_t kColumns = 512;
constexpr int64_t kNow = int64_t{2'000'000'000} * 1'000'000'000;

// Made once: it takes longer than the tests.
Weights Made(DType dtype, uint32_t rows, uint32_t seed) {
  static std::mutex mu;
  const std::lock_guard<std::mutex> lock(mu);
  static std::map<std::tuple<DType, uint32_t, uint32_t>, std::vector<std::byte>> made;
  std::vector<std::byte>& bytes = made[{dtype, rows, seed}];
  if (bytes.empty()) bytes = MakeWeights(dtype, rows, kColumns, seed).bytes;
  Weights w{.bytes = bytes, .view = {}};
  w.view = {.data = w.bytes.data(), .dtype = dtype, .shape = {rows, kColumns}};
  return w;
}

// A rank's matrices: of every type, one reordered slice of heads, one slice of columns, one of more
// than a part, one without rows.
class Matrices {
 public:
  explicit Matrices(uint32_t seed = 1) {
    for (const DType dtype : kAllDTypes) {
      Add(Made(dtype, 37, seed), 37, ColumnPlan(kColumns), {});
    }
    Add(Made(DType::kQ41, 256, seed), 64, ColumnPlan(kColumns),
        {.order = RowOrder::kInterleavedHalves, .head_dim = 32, .first_row = 96});
    const std::vector<UnitRange> held{{1, 2}, {4, 6}};
    Add(Made(DType::kQ80, 50, seed), 50, RowPlan(kColumns, 80, 64, held), {});
    Add(Made(DType::kF32, 8, seed), 0, ColumnPlan(kColumns), {});
    Add(Made(DType::kF32, 2200, seed), 2200, ColumnPlan(kColumns), {});
  }

  void Add(Weights weights, uint32_t rows, KPlan plan, PackJob job) {
    weights_.push_back(std::move(weights));
    auto described = PackedMatrix::Describe(weights_.back().view, rows, std::move(plan));
    CLEAVE_CHECK(described.ok());
    targets_.push_back(*std::move(described));
    job.source = weights_.back().view;
    job.target = &targets_.back();
    jobs_.push_back(job);
  }

  void Pack() {
    for (const PackJob& job : jobs_) {
      CLEAVE_CHECK(job.target->Reserve().ok());
      job.target->PackGroups(
          job.source, [&job](uint64_t r) { return job.SourceRowOf(r); }, 0, job.target->groups());
      job.target->Finish();
    }
  }

  [[nodiscard]] std::vector<PackJob>& jobs() { return jobs_; }
  [[nodiscard]] std::list<Weights>& weights() { return weights_; }

 private:
  std::list<Weights> weights_;  // addresses stay
  std::list<PackedMatrix> targets_;
  std::vector<PackJob> jobs_;
};

void ExpectEqual(Matrices* a, Matrices* b) {
  ASSERT_EQ(a->jobs().size(), b->jobs().size());
  for (size_t i = 0; i < a->jobs().size(); ++i) {
    const PackedMatrix& x = *a->jobs()[i].target;
    const PackedMatrix& y = *b->jobs()[i].target;
    ASSERT_EQ(x.bytes(), y.bytes());
    EXPECT_EQ(std::memcmp(x.group_data(0), y.group_data(0), x.bytes()), 0) << i;
    EXPECT_EQ(std::bit_cast<uint32_t>(x.max_row_norm()), std::bit_cast<uint32_t>(y.max_row_norm()));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(y.group_data(0)) % 64, 0U);
  }
}

std::vector<FileStamp> OldFile(uint64_t inode = 5) {
  return {{.device = 1, .inode = inode, .bytes = 100, .modified_ns = 10, .changed_ns = 20}};
}

class PackedStoreTest : public ::testing::Test {
 protected:
  PackedStoreTest() { packed_.Pack(); }

  PackedStore StoreOf(Matrices* matrices, const std::vector<FileStamp>& files = OldFile()) {
    return {folder_.path(), matrices->jobs(), files, kNow};
  }
  void SaveNew() { ASSERT_EQ(StoreOf(&packed_).Save(&pool_, nullptr).ToString(), "ok"); }
  // What a start says about the file that is there; a start that fails leaves no target changed.
  Status LoadNew() {
    Matrices fresh;
    const auto region = StoreOf(&fresh).Load(&pool_, nullptr);
    if (region.ok()) {
      ExpectEqual(&packed_, &fresh);
    } else {
      EXPECT_EQ(fresh.jobs()[0].target->group_data(0), nullptr);
    }
    return region.status();
  }
  // Then the file is replaced, and good.
  void ExpectRepair() {
    SaveNew();
    EXPECT_EQ(LoadNew().ToString(), "ok");
  }
  void Flip(uint64_t at) {
    std::fstream file(StoreOf(&packed_).path(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(at));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ 1));
  }
  [[nodiscard]] size_t FileCount() const {
    const std::filesystem::directory_iterator entries(folder_.path());
    return static_cast<size_t>(std::distance(begin(entries), end(entries)));
  }

  const TempFolder folder_;
  ThreadPool pool_{2};
  Matrices packed_;
};

TEST_F(PackedStoreTest, EveryMatrixComesBackToTheBit) {
  EXPECT_EQ(LoadNew().code(), StatusCode::kNotFound);
  SaveNew();
  EXPECT_EQ(FileCount(), 1U);
  using Keep = PackedStore::Keep;
  for (const Keep keep : {Keep::kMapped, Keep::kCopied, Keep::kMappedIfHuge}) {
    for (const uint32_t threads : {1U, 3U}) {
      ThreadPool pool(threads);
      Matrices fresh;
      double done = 0;
      const auto region = StoreOf(&fresh).Load(
          &pool, [&done](double share) { done = share; }, keep);
      ASSERT_TRUE(region.ok()) << region.status().ToString();
      EXPECT_TRUE(keep == Keep::kMappedIfHuge || region->mapped() == (keep == Keep::kMapped));
      EXPECT_EQ(done, 1);
      ExpectEqual(&packed_, &fresh);
    }
  }
}

TEST_F(PackedStoreTest, TheFileDoesNotDependOnThreads) {
  SaveNew();
  const std::string path = StoreOf(&packed_).path();
  const auto read = [&path] {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string two = read();
  ThreadPool pool(3);
  ASSERT_TRUE(StoreOf(&packed_).Save(&pool, nullptr).ok());
  EXPECT_TRUE(read() == two);
  EXPECT_EQ(two.size(), StoreOf(&packed_).file_bytes());
}

TEST_F(PackedStoreTest, EveryDamagedFieldIsNamedAndReplaced) {
  const std::string path = StoreOf(&packed_).path();
  const uint64_t size = StoreOf(&packed_).file_bytes();
  const uint64_t norms = 80 + packed_.jobs().size() * 4;
  const uint64_t data = 2 << 20;
  const struct {
    uint64_t at;
    std::string said;
  } cases[] = {{0, ": its magic is wrong"},
               {8, ": its file version is wrong"},
               {12, ": its version of packed weights is wrong"},
               {16, ": its key is wrong"},
               {31, ": its key is wrong"},
               {32, ": its header's checksum is wrong"},  // content
               {47, ": its header's checksum is wrong"},
               {48, ": its header's checksum is wrong"},  // stamp
               {56, ": its number of matrices is wrong"},
               {64, ": its length is wrong"},
               {72, ": its header's checksum is wrong"},
               {80, ": its header's checksum is wrong"},  // a norm
               {norms, ": its header's checksum is wrong"},
               {data, ": damaged between bytes 2097152 and 6291456"},
               {data + (4 << 20), ": damaged between bytes 6291456 and 10485760"},
               {size - 1, ": damaged between bytes "}};
  for (const auto& [at, said] : cases) {
    SaveNew();
    Flip(at);
    const Status status = LoadNew();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << at;
    EXPECT_THAT(status.message(), StartsWith(path + said)) << at;
  }
  ExpectRepair();
}

TEST_F(PackedStoreTest, AnotherLengthIsNamedAndReplaced) {
  const std::string path = StoreOf(&packed_).path();
  const uint64_t size = StoreOf(&packed_).file_bytes();
  for (const uint64_t other : {uint64_t{0}, uint64_t{1}, uint64_t{79}, uint64_t{80}, uint64_t{4096},
                               uint64_t{2} << 20U, size / 2, size - 1, size + 1}) {
    SaveNew();
    std::filesystem::resize_file(path, other);
    const Status status = LoadNew();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_EQ(status.message(),
              fmt::format("{}: has {} bytes, {} are expected", path, other, size));
  }
  ExpectRepair();
}

TEST_F(PackedStoreTest, AForeignFileIsNamedAndReplaced) {
  const std::string path = StoreOf(&packed_).path();
  std::ofstream(path) << std::string(StoreOf(&packed_).file_bytes(), 'x');
  ::chmod(path.c_str(), 0600);
  EXPECT_EQ(LoadNew().message(), path + ": its magic is wrong");
  ExpectRepair();
  ::chmod(path.c_str(), 0666);
  EXPECT_EQ(LoadNew().message(), path + ": others may write it; it should have mode 0600");
  ExpectRepair();
  std::filesystem::rename(path, folder_.path() + "/real");
  std::filesystem::create_symlink("real", path);
  EXPECT_EQ(LoadNew().message(), path + ": is a symbolic link");
  ExpectRepair();
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(LoadNew().message(), path + ": not a regular file");
  ExpectRepair();
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(path.c_str(), 1234, 0), 0);
    EXPECT_THAT(LoadNew().message(), StartsWith(path + ": belongs to user 1234, this is 0"));
    ExpectRepair();
  }
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_EQ(LoadNew().message(), path + ": not a regular file");
  EXPECT_EQ(StoreOf(&packed_).Save(&pool_, nullptr).message(), path + ": rename: Is a directory");
  EXPECT_EQ(FileCount(), 2U);  // that folder and "real"
}

TEST_F(PackedStoreTest, OtherWeightsOfTheSameShapesAreOthers) {
  SaveNew();
  // Another training: another file.
  Matrices trained(2);
  EXPECT_NE(StoreOf(&trained).path(), StoreOf(&packed_).path());
  EXPECT_EQ(StoreOf(&trained).Load(&pool_, nullptr).status().code(), StatusCode::kNotFound);
  // One byte, outside the sample: the same name, known by the file's stamp or by its contents.
  Matrices edited;
  edited.weights().back().bytes[17] ^= std::byte{1};
  ASSERT_EQ(StoreOf(&edited).path(), StoreOf(&packed_).path());
  const std::string said = StoreOf(&packed_).path() + ": is of other weights of these shapes";
  EXPECT_EQ(StoreOf(&edited, OldFile(6)).Load(&pool_, nullptr).status().message(), said);
  // A byte of a row that this rank does not hold changes nothing.
  Matrices elsewhere;
  auto slice = std::next(elsewhere.weights().begin(), std::size(kAllDTypes));
  slice->bytes[0] ^= std::byte{1};
  EXPECT_TRUE(StoreOf(&elsewhere, OldFile(6)).Load(&pool_, nullptr).ok());
}

TEST_F(PackedStoreTest, ACopyOfTheModelIsKnownByItsContents) {
  SaveNew();
  Matrices copy;
  const auto region = StoreOf(&copy, OldFile(6)).Load(&pool_, nullptr);
  ASSERT_TRUE(region.ok()) << region.status().ToString();
  ExpectEqual(&packed_, &copy);
}

TEST_F(PackedStoreTest, StampsAreOfSettledFilesOnly) {
  const auto stamp = [](auto... changes) {
    FileStamp file = OldFile()[0];
    (changes(&file), ...);
    return StampOf(std::vector{file}, kNow);
  };
  const uint64_t plain = stamp();
  EXPECT_NE(plain, 0U);
  EXPECT_EQ(plain, stamp());
  EXPECT_NE(plain, stamp([](FileStamp* f) { f->device = 2; }));
  EXPECT_NE(plain, stamp([](FileStamp* f) { f->inode = 6; }));
  EXPECT_NE(plain, stamp([](FileStamp* f) { f->bytes = 99; }));
  EXPECT_NE(plain, stamp([](FileStamp* f) { f->modified_ns = 11; }));
  EXPECT_NE(plain, stamp([](FileStamp* f) { f->changed_ns = 21; }));
  EXPECT_NE(plain, StampOf(std::vector{OldFile()[0], OldFile()[0]}, kNow));
  // Files that may change again within a tick of their clock, or come from the future.
  EXPECT_EQ(stamp([](FileStamp* f) { f->changed_ns = kNow - 4'000'000'000; }), 0U);
  EXPECT_EQ(stamp([](FileStamp* f) { f->modified_ns = kNow + 1; }), 0U);
  EXPECT_NE(stamp([](FileStamp* f) { f->changed_ns = kNow - 6'000'000'000; }), 0U);
  EXPECT_EQ(StampOf({}, kNow), 0U);
  // Without a stamp the contents are compared at every start.
  std::vector<FileStamp> fresh = OldFile();
  fresh[0].changed_ns = kNow;
  ASSERT_TRUE(StoreOf(&packed_, fresh).Save(&pool_, nullptr).ok());
  Matrices edited;
  edited.weights().back().bytes[17] ^= std::byte{1};
  EXPECT_EQ(StoreOf(&edited, fresh).Load(&pool_, nullptr).status().code(),
            StatusCode::kInvalidArgument);
  Matrices same;
  EXPECT_TRUE(StoreOf(&same, fresh).Load(&pool_, nullptr).ok());
}

TEST(PackedKey, IsOfEverythingThatDeterminesTheBytes) {
  const auto key = [](uint32_t rows, KPlan plan, DType packed_as, PackJob job) {
    static const Weights weights = MakeWeights(DType::kF32, 64, kColumns, 1);
    TensorView view = weights.view;
    view.dtype = packed_as;
    auto target = PackedMatrix::Describe(view, rows, std::move(plan));
    CLEAVE_CHECK(target.ok());
    job.source = weights.view;
    job.target = &*target;
    return KeyOf({&job, 1}).Hex();
  };
  const std::vector<UnitRange> first{{0, 2}};
  const std::vector<UnitRange> second{{2, 4}};
  std::vector<std::string> keys{
      key(32, ColumnPlan(kColumns), DType::kF32, {.head_dim = 32}),
      key(48, ColumnPlan(kColumns), DType::kF32, {.head_dim = 32}),
      key(32, ColumnPlan(kColumns / 2), DType::kF32, {.head_dim = 32}),
      key(32, RowPlan(kColumns, 128, 64, first), DType::kF32, {.head_dim = 32}),
      key(32, RowPlan(kColumns, 128, 64, second), DType::kF32, {.head_dim = 32}),
      key(32, RowPlan(kColumns, 128, 128, first), DType::kF32, {.head_dim = 32}),
      key(32, ColumnPlan(kColumns), DType::kF16, {.head_dim = 32}),
      key(32, ColumnPlan(kColumns), DType::kBF16, {.head_dim = 32}),
      key(32, ColumnPlan(kColumns), DType::kF32, {.head_dim = 32, .first_row = 32}),
      key(32, ColumnPlan(kColumns), DType::kF32, {.head_dim = 16}),
      key(32, ColumnPlan(kColumns), DType::kF32,
          {.order = RowOrder::kInterleavedHalves, .head_dim = 32})};
  EXPECT_EQ(keys[0].size(), 32U);
  EXPECT_EQ(keys[0], key(32, ColumnPlan(kColumns), DType::kF32, {.head_dim = 32}));
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(std::adjacent_find(keys.begin(), keys.end()), keys.end());
}

TEST_F(PackedStoreTest, ManyMayWriteAndReadAtOnce) {
  SaveNew();
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([this] {
      ThreadPool pool(1);
      for (int k = 0; k < 3; ++k) {
        EXPECT_EQ(StoreOf(&packed_).Save(&pool, nullptr).ToString(), "ok");
        Matrices fresh;
        const auto region = StoreOf(&fresh).Load(&pool, nullptr);
        ASSERT_TRUE(region.ok()) << region.status().ToString();
        ExpectEqual(&packed_, &fresh);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(FileCount(), 1U);
}

TEST_F(PackedStoreTest, WhereNothingCanBeWrittenIsSaid) {
  const std::string file = folder_.Write("file", "x");
  const PackedStore in_file(file, packed_.jobs(), OldFile(), kNow);
  EXPECT_EQ(in_file.Save(&pool_, nullptr).message(), file + ": open: Not a directory");
  const PackedStore deep(folder_.path() + "/no/such", packed_.jobs(), OldFile(), kNow);
  EXPECT_EQ(deep.Save(&pool_, nullptr).message(),
            folder_.path() + "/no/such: mkdir: No such file or directory");
  EXPECT_EQ(deep.Load(&pool_, nullptr).status().code(), StatusCode::kNotFound);
  // A folder that is not there is made.
  const PackedStore made(folder_.path() + "/made", packed_.jobs(), OldFile(), kNow);
  EXPECT_EQ(made.Save(&pool_, nullptr).ToString(), "ok");
  EXPECT_TRUE(std::filesystem::exists(made.path()));
}

}  // namespace
}  // namespace cleave
