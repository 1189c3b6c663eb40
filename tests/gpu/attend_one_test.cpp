// SPDX-License-Identifier: Apache-2.0
// Attention of one row, beside the reference.

#include "gpu/support.h"
#include "gpu/text_on_device.h"
#include "support/catch.h"

namespace minim::test {

using backend::Arithmetic;

TEST_CASE("gpu attend: one row, in every format, at the borders of pages") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::fast);
    f.stream = f.device->reserve(
        {.n_rows = 2, .n_context = 8000, .hidden = 1536, .n_head = 12, .n_head_kv = 4, .head_dim = 128});
    for (const Format format : {Format::f16, Format::bf16, Format::q8_0, Format::q4_0, Format::f32}) {
        for (const int64_t n_context : {1, 63, 64, 65, 128, 129, 200, 4100, 7000}) {
            if (n_context > 4000 && format != Format::f16 && format != Format::q8_0) continue;
            INFO(traits(format).name << ", " << n_context << " positions");
            TextOnDevice text(f, format, 1, n_context - 1);
            const std::vector<float> first = text.attend();
            CHECK(text.is_near_reference());
            const std::vector<std::byte> page = text.last_page();
            CHECK(same_bits(text.attend(), first));
            CHECK(text.last_page() == page);
            text.new_inputs(2);  // the row's key and value are written again
            text.attend();
            CHECK(text.is_near_reference());
        }
    }
}

TEST_CASE("gpu attend: steps of one row that are repeated attend anew") {
    if (!has_devices(1)) return;
    Fixture f(Arithmetic::fast);
    for (const Format format : {Format::f16, Format::q8_0}) {
        for (const int64_t position : {40, 150}) {
            INFO(traits(format).name << ", position " << position);
            TextOnDevice text(f, format, 1, position);
            for (int step = 0; step < 6; ++step) {
                text.new_inputs(static_cast<uint32_t>(step + 5));
                text.write_inputs();
                bool is_repeated = false;
                do {
                    is_repeated = f.device->begin_step(*f.stream, text.batch());
                    if (is_repeated) break;
                    text.start();
                } while (!f.device->end_step(*f.stream));
                f.device->synchronize(*f.stream);
                CHECK(is_repeated == (step >= 2));
                CHECK(text.is_near_reference());
            }
        }
    }
}

}  // namespace minim::test
