/**
 * Chromium under the locale C or POSIX names its language `en-US@posix`. Intl refuses that, and uPlot, which asks Intl
 * for the page's language as it loads, would take the whole page with it. So this module is the first one imported.
 */
try {
  Intl.getCanonicalLocales(navigator.language);
} catch {
  Object.defineProperty(navigator, 'language', { value: 'en' });
}
