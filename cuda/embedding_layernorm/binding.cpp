// Embeddings and their LayerNorm for torch: fusescope::embedding_layernorm(Tensor word, Tensor word_ids, Tensor?
// position, Tensor? position_ids, Tensor? type, Tensor? type_ids, Tensor weight, Tensor shift, float eps, str impl) ->
// Tensor.
#include <vector>

#include "../common/row_operands.h"
#include "embedding_layernorm.cuh"

namespace {
using namespace fusescope;
using torch::headeronly::ScalarType;

Tensor embedding_layernorm(const Tensor& word, const Tensor& word_ids, const std::optional<Tensor>& position,
                           const std::optional<Tensor>& position_ids, const std::optional<Tensor>& type,
                           const std::optional<Tensor>& type_ids, const Tensor& weight, const Tensor& shift, double eps,
                           const std::string& impl) {
  STD_TORCH_CHECK(word.dim() == 2 && word_ids.dim() >= 1, "word is (rows, width), word_ids has at least one dimension");
  const Tensor w = row_vector(weight, "weight", word), s = row_vector(shift, "shift", word);
  EmbeddingLayernormArgs args{};
  std::vector<Rows> tables;  // they own what args points to
  std::vector<Tensor> owned;
  auto add = [&](int which, const char* name, const Tensor& table, const std::optional<Tensor>& ids) {
    STD_TORCH_CHECK(table.dim() == 2 && table.sizes()[1] == word.sizes()[1], name,
                    " is (rows, width) with the width of word");
    check_alike(table, name, word);
    tables.push_back(as_rows(table));
    args.table[which] = {tables.back().tensor.const_data_ptr(), tables.back().step, table.sizes()[0], nullptr};
    if (!ids) return;
    bool same = ids->dim() == word_ids.dim() && ids->get_device_index() == word.get_device_index();
    for (int64_t i = 0; same && i < ids->dim(); ++i) same = ids->sizes()[i] == word_ids.sizes()[i];
    const bool wide = ids->scalar_type() == ScalarType::Long;
    STD_TORCH_CHECK(same && (wide || ids->scalar_type() == ScalarType::Int), name,
                    "_ids are int32 or int64 of the shape of word_ids on the device of word");
    owned.push_back(as_contiguous(*ids));
    args.table[which].ids = owned.back().const_data_ptr();
    args.wide_ids[which] = wide ? 1 : 0;
  };
  add(0, "word", word, word_ids);
  if (position) add(1, "position", *position, position_ids);
  if (type) add(2, "type", *type, type_ids);
  std::vector<int64_t> shape(word_ids.sizes().begin(), word_ids.sizes().end());
  args.seq = shape.back() > 0 ? shape.back() : 1;
  args.tokens = word_ids.numel();
  args.cols = word.sizes()[1];
  shape.push_back(args.cols);
  Tensor out = torch::stable::new_empty(word, shape);
  args.weight = w.const_data_ptr(), args.shift = s.const_data_ptr(), args.out = out.mutable_data_ptr();
  args.eps = float(eps), args.dtype = dtype_of(word);
  if (out.numel() > 0) run("embedding_layernorm", impl, args, word);
  return out;
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) {
  m.def(
      "embedding_layernorm(Tensor word, Tensor word_ids, Tensor? position, Tensor? position_ids, Tensor? type, Tensor? "
      "type_ids, "
      "Tensor weight, Tensor shift, float eps, str impl) -> Tensor");
}
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) {
  m.impl("embedding_layernorm", TORCH_BOX(&embedding_layernorm));
}
