import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';

// `npm run image-test`: not a part of `npm test`, because a build takes minutes and needs root.
export default defineConfig({
  root: fileURLToPath(new URL('../..', import.meta.url)),
  test: {
    name: 'image',
    include: ['test/image/*.test.ts'],
    globalSetup: ['test/harness/global-setup.ts'],
    testTimeout: 120_000,
    hookTimeout: 20 * 60_000,
    retry: 0,
  },
});
