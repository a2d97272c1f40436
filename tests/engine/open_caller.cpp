// A caller of `emu serve` in C++: posts one transfer after another, each when the one before is delivered.
// Arguments: path of the Unix socket, token, how many transfers. Prints the time of each completion in ps.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

using Bytes = std::string;

static Bytes sha256(const Bytes &text) {  // FIPS 180-4
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
    std::array<uint32_t, 8> h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    auto turn = [](uint32_t x, int n) { return x >> n | x << (32 - n); };
    Bytes padded = text + '\x80';
    while (padded.size() % 64 != 56) padded += '\0';
    for (int shift = 56; shift >= 0; shift -= 8) padded += char(uint64_t(text.size()) * 8 >> shift);
    for (size_t block = 0; block < padded.size(); block += 64) {
        uint32_t w[64];
        for (int i = 0; i < 16; i++) {
            w[i] = 0;
            for (int j = 0; j < 4; j++) w[i] = w[i] << 8 | uint8_t(padded[block + 4 * i + j]);
        }
        for (int i = 16; i < 64; i++)
            w[i] = w[i - 16] + (turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3) + w[i - 7] +
                   (turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10);
        auto v = h;
        for (int i = 0; i < 64; i++) {
            uint32_t one = v[7] + (turn(v[4], 6) ^ turn(v[4], 11) ^ turn(v[4], 25)) +
                           ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[i] + w[i];
            uint32_t two = (turn(v[0], 2) ^ turn(v[0], 13) ^ turn(v[0], 22)) +
                           ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
            v = {one + two, v[0], v[1], v[2], v[3] + one, v[4], v[5], v[6]};
        }
        for (int i = 0; i < 8; i++) h[i] += v[i];
    }
    Bytes found;
    for (uint32_t word : h)
        for (int shift = 24; shift >= 0; shift -= 8) found += char(word >> shift);
    return found;
}

static Bytes hmac(Bytes key, const Bytes &text) {  // RFC 2104, keys of up to 64 bytes
    key.resize(64, '\0');
    Bytes inner, outer;
    for (char c : key) inner += char(c ^ 0x36), outer += char(c ^ 0x5c);
    return sha256(outer + sha256(inner + text));
}

static Bytes number(uint64_t value, int bytes) {
    Bytes found;
    for (int shift = 8 * bytes - 8; shift >= 0; shift -= 8) found += char(value >> shift);
    return found;
}
static Bytes text(const Bytes &value) { return "\xdb" + number(value.size(), 4) + value; }
static Bytes binary(const Bytes &value) { return "\xc6" + number(value.size(), 4) + value; }
static Bytes whole(uint64_t value) { return "\xcf" + number(value, 8); }

static int opened;

static void send_frame(const Bytes &body) {
    Bytes frame = number(body.size(), 4) + body;
    for (size_t at = 0; at < frame.size();) at += write(opened, frame.data() + at, frame.size() - at);
}
static Bytes receive(size_t size) {
    Bytes found(size, '\0');
    for (size_t at = 0; at < size;) {
        ssize_t got = read(opened, &found[at], size - at);
        if (got <= 0) std::exit(1);
        at += got;
    }
    return found;
}
static Bytes receive_frame() {
    Bytes head = receive(4);
    size_t size = 0;
    for (char c : head) size = size << 8 | uint8_t(c);
    return receive(size);
}
static uint64_t read_whole(const Bytes &body, size_t &at) {
    uint8_t head = body[at++];
    if (head < 0x80) return head;
    int bytes = 1 << (head - 0xcc);
    uint64_t value = 0;
    while (bytes--) value = value << 8 | uint8_t(body[at++]);
    return value;
}
static Bytes ask(const Bytes &request) {
    send_frame(request);
    Bytes answer = receive_frame();
    if (uint8_t(answer[0]) != 0x92 || uint8_t(answer[1]) != 0xc2) std::exit(2);  // [false, result]
    return answer;
}

int main(int, char **argv) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, argv[1], sizeof address.sun_path - 1);
    opened = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(opened, reinterpret_cast<sockaddr *>(&address), sizeof address)) return 1;
    Bytes key, token = argv[2];
    for (size_t at = 0; at < token.size(); at += 2) key += char(std::stoi(token.substr(at, 2), nullptr, 16));
    Bytes hello = receive_frame();  // ["emu", version, 16 bytes]
    Bytes nonce = hello.substr(hello.size() - 16);
    ask("\x92" + text("main") + binary(hmac(key, nonce + "main")));
    for (int left = std::atoi(argv[3]); left; left--) {
        ask("\x93" + text("post") + "\x93" + whole(0) + whole(3) + whole(4096) + "\x81" + text("tell") +
            text("delivered"));
        Bytes done = ask("\x93" + text("next") + "\x90" + "\x80");
        size_t at = 3;  // behind the head of [false, [number, kind, rank, begun_ps, at_ps, status]]
        read_whole(done, at);
        at += 1 + (uint8_t(done[at]) & 0x1f);  // a short text
        read_whole(done, at);
        read_whole(done, at);
        std::printf("%llu\n", static_cast<unsigned long long>(read_whole(done, at)));
    }
    ask("\x93" + text("close") + "\x90" + "\x80");
    return 0;
}
